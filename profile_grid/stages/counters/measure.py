"""Counts what kernels do, under Nsight Compute, and calibrates the roofs of the GPU.

Where counters cannot be had (no GPU, nsys or ncu, no permission) the result is "unsupported", with the cause and what
removes it: the rest of the run stands. What ncu writes besides its table is not kept, and of that no more than names,
sizes and metrics (kernel_tables.counters.reading); its report, which would hold the environment, is never written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from cs336_model.program.variants.values import NOT_COMPILED
from kernel_recorder import ncu_profile
from kernel_recorder.gpu import gpu_is_visible
from kernel_tables.errors import TraceError
from kernel_tables.reading import nsys
from profile_grid.files import replacing
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.long_output import cut_line
from profile_grid.host.processes.measured_program import Attempt, program_command, result_of, stage_output, started_for
from profile_grid.host.processes.problems import Problem, append_to_log
from profile_grid.host.processes.programs import (
    ProcessExit,
    ProgramFailed,
    Started,
    code_changed,
    failure_message,
    python_crashed,
)
from profile_grid.results.results import COMPLETE, INCOMPLETE, UNSUPPORTED
from profile_grid.stages.counters.problems import (
    CRASHED,
    NO_COUNTERS,
    NO_GPU,
    NO_NCU,
    NO_NSYS,
    NO_TABLE,
    TIME_LIMIT,
    problem_of,
)
from profile_grid.study.stages import COUNTERS

if TYPE_CHECKING:
    import pandas as pd

ROOFS = "cs336_model.program.roofs"
LAYERS = "num_layers"
PROGRAM = "program.json"
(TABLE,) = COUNTERS.files


def measure(job: Job) -> dict:
    """What counters.json holds of the processes; the counters are in the job's folder, none where there are none.

    Raises ProgramFailed when the calibration crashes.
    """
    version, tables, roofs = None, [], {}
    attempt = Attempt(None, {"calibration": 0.0}, _why_not_here(job))
    if attempt.problem is None:
        version = ncu_profile.version(ncu_profile.find())
        attempt, tables, roofs = _measured(job)
    table = _reading().rounds_together(tables) if tables else _reading().no_counters()
    with replacing(job.folder / TABLE) as path:
        table.to_csv(path, index=False)
    facts, problem = {"ncu": version, "roofs": roofs}, attempt.problem
    return stage_output(attempt.program, attempt.seconds, facts, problem, problem and _status_of(problem))


def _why_not_here(job: Job) -> Problem | None:
    """Why nothing can be counted on this machine, found without running anything; None where it may go."""
    if job.program["device"] == "cpu" or not gpu_is_visible():
        return NO_GPU
    if not nsys.find():
        return NO_NSYS
    return None if ncu_profile.find() else NO_NCU


def with_layers(job: Job, most: int) -> Job:
    """The job with a model of no more layers than that: every block launches the same kernels, and ncu saves and
    restores all memory of the process for each pass over each of them. A compiled graph is another with other blocks,
    and so are the buckets that several GPUs exchange: these keep their layers, as does a model that has none by that
    name."""
    sizes, dimensions = job.program["sizes"], job.program["dimensions"]
    layers = sizes.get(LAYERS)
    if dimensions["compile"] != NOT_COMPILED or dimensions["gpus"] > 1 or not isinstance(layers, int) or layers <= most:
        return job
    program = job.program | {"sizes": sizes | {LAYERS: most}}
    return replace(job, specification=job.specification | {"program": program})


def _measured(job: Job) -> tuple[Attempt, list[pd.DataFrame], dict[str, float | None]]:
    """What came of the rounds, their tables, and the rates that this GPU reaches, by roof; neither where a round is not
    whole. They have the GPU one after another, and start together: ncu and its program take 6 s until they ask for it.
    """
    with ExitStack() as beside:
        calibrating = replace(job, log=_log_beside(job, "roofs"))
        calibration = beside.enter_context(_calibration(calibrating))
        counting = []
        for number, of_round in enumerate(ncu_profile.ROUNDS):
            round_job = _job_of_round(job, number)
            counting.append((round_job, beside.enter_context(_round(round_job, of_round))))
        calibrated = calibration.outcome()
        attempt, tables = _counted(counting)
    if not tables:
        return attempt, [], {}
    roofs = result_of(calibrating, f"roofs of {job.program['run']}", _roofs_file(job), calibrated)
    return replace(attempt, seconds=attempt.seconds | {"calibration": round(calibrated.seconds, 3)}), tables, roofs


def _counted(counting: Iterable[tuple[Job, Started]]) -> tuple[Attempt, list[pd.DataFrame]]:
    """The program's result in the last of the rounds, and the tables of all; or the first that is not whole, and none:
    the others are of no use then."""
    attempt, tables, seconds = Attempt(None), [], {"program": 0.0, "calibration": 0.0}
    for job, program in counting:
        attempt = _attempt(job, program)
        seconds |= attempt.seconds
        if attempt.problem or attempt.program["status"] != COMPLETE:
            return replace(attempt, seconds=seconds), []
        tables.append(_table(job.scratch / TABLE))
    if not any(map(len, tables)):
        return replace(attempt, seconds=seconds, problem=NO_COUNTERS), []
    return replace(attempt, seconds=seconds), tables


def _job_of_round(job: Job, number: int) -> Job:
    """The job of one round: with a model of few layers, and with a folder and a log of its own but for the first."""
    folder, most = job.scratch / f"round-{number}", job.specification["layers"]
    folder.mkdir()
    round_job = replace(job, scratch=folder, log=_log_beside(job, folder.name) if number else job.log)
    return with_layers(round_job, max(most // 2, 1) if ncu_profile.ROUNDS[number].half else most)


def _log_beside(job: Job, name: str) -> Path:
    """A further log of the job: what ncu says is looked for in the one of its own round."""
    return job.log.with_name(f"{job.log.stem}_{name}{job.log.suffix}")


def _round(job: Job, of_round: ncu_profile.Round) -> AbstractContextManager[Started]:
    """One process under ncu, which runs meanwhile."""
    program = program_command(job, job.scratch / PROGRAM, "ncu", lease=job.leases.address)
    # ncu unpacks its sections into HOME. Its lock in TMPDIR lets one ncu count at a time, and stops that of another
    # user: with one of its own, runs on other GPUs of the host are counted at once.
    folders = dict.fromkeys(("HOME", "TMPDIR"), str(job.scratch.resolve()))
    return started_for(job, ncu_profile.counters_command(program, job.scratch / TABLE, of_round), folders)


def _attempt(job: Job, counting: Started) -> Attempt:
    """What came of a round; waits for its end."""
    outcome, result = counting.outcome(), job.scratch / PROGRAM
    written = json.loads(result.read_text()) if result.exists() else None
    ended_otherwise = written is not None and written["status"] != COMPLETE
    problem = None if ended_otherwise else _problem(job, job.scratch / TABLE, written, outcome)
    return Attempt(written, {"program": outcome.seconds}, problem)


def _problem(job: Job, table: Path, written: dict | None, outcome: ProcessExit) -> Problem | None:
    """Why a round gave no table, None where it gave one. A crash is one such reason here: by default nobody asked for
    counters, and a model may bear neither ncu nor the fewer layers that it has there. Its timing fails where it crashes
    by itself."""
    output = outcome.output(job.log) + "".join(_messages(table))
    if refused := problem_of(output):
        return refused
    if outcome.timed_out:
        return TIME_LIMIT
    if written is None:
        if code_changed(output):
            raise ProgramFailed(
                failure_message(f"counters of {job.program['run']}", outcome, job.log, job.time_limit_s)
            )
        if python_crashed(output):
            return replace(CRASHED, said=cut_line(outcome.output(job.log).rstrip().rpartition("\n")[2]))
        return Problem("ncu_ended_early", f"ncu {outcome.how} before the program had written its result")
    try:
        _table(table)
    except (TraceError, OSError) as error:
        append_to_log(job.log, str(error))
        return NO_TABLE
    return None


def _table(path: Path) -> pd.DataFrame:
    """The counters of a round; none where no kernel of the program has such a name."""
    if any("No kernels were profiled" in line for line in _messages(path)):
        return _reading().no_counters()
    return _reading().read_counters(path)


def _reading() -> ModuleType:
    """What reads ncu's tables. It loads pandas, for which no process of the job has to wait."""
    from kernel_tables.counters import reading

    return reading


def _messages(path: Path) -> Iterator[str]:
    """The lines of ncu's file that are no rows of its table."""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line for line in file if line.startswith("=="))


def _status_of(problem: Problem) -> str:
    """What is refused will be refused again; the rest may go well another time."""
    passing = ("time_limit", "ncu_ended_early", "no_table", "no_counters", CRASHED.code)
    return INCOMPLETE if problem.code in passing else UNSUPPORTED


def _calibration(job: Job) -> AbstractContextManager[Started]:
    """The process that finds the rates that this GPU reaches, by roof, which runs meanwhile."""
    lease = ["--lease", str(job.leases.address)] if job.leases.address else []
    return started_for(job, [sys.executable, "-m", ROOFS, "--output", str(_roofs_file(job)), *lease])


def _roofs_file(job: Job) -> Path:
    return job.scratch / "roofs.json"
