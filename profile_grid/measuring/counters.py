"""The stage that counts what kernels do, under Nsight Compute, and calibrates the roofs of the GPU beside it.

Where counters cannot be had (no GPU, nsys or ncu, no permission) the result is "unsupported", with the cause and what
removes it: the rest of the run stands. What ncu writes besides its table is not kept, and of that no more than names,
sizes and metrics (kernel_tables.counters.reading); its report, which would hold the environment, is never written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd

from cs336_model.program.variants.values import NOT_COMPILED
from kernel_tables.counters.reading import no_counters, read_counters, rounds_together
from kernel_tables.errors import TraceError
from kernel_tables.reading import nsys
from kernel_tables.recording import ncu_profile
from kernel_tables.recording.gpu import gpu_is_visible
from profile_grid.files import replacing
from profile_grid.measuring.counter_problems import (
    CRASHED,
    NO_COUNTERS,
    NO_GPU,
    NO_NCU,
    NO_NSYS,
    NO_TABLE,
    TIME_LIMIT,
    problem_of,
)
from profile_grid.measuring.job import Job
from profile_grid.measuring.long_output import cut_line
from profile_grid.measuring.measured_program import Attempt, program_command, run_to_result
from profile_grid.measuring.problems import Problem, append_to_log
from profile_grid.measuring.processes import (
    Outcome,
    allowed_environment,
    python_crashed,
    run_program,
)
from profile_grid.measuring.results import COMPLETE, INCOMPLETE, UNSUPPORTED
from profile_grid.study.stages import COUNTERS

ROOFS = "cs336_model.program.roofs"
LAYERS = "num_layers"
(TABLE,) = COUNTERS.files


def counted(job: Job) -> dict:
    """What counters.json holds of the process; the counters are in the job's folder, none where there are none.

    Raises ProgramFailed when the calibration crashes.
    """
    version, tables, calibrated = None, [], None
    problem = _why_not_here(job)
    attempt = Attempt(None, problem=problem)
    if problem is None:
        version = ncu_profile.version(ncu_profile.find())
        with ThreadPoolExecutor(1) as beside:  # it leases the GPU while ncu and its program still start
            calibrated = beside.submit(_calibrated, job)
            attempt, tables = _counted(job)
    status = attempt.program["status"] if attempt.problem is None else _status_of(attempt.problem)
    table = rounds_together(tables) if status == COMPLETE else no_counters()
    roofs, seconds = calibrated.result() if status == COMPLETE else ({}, 0.0)
    with replacing(job.folder / TABLE) as beside:
        table.to_csv(beside, index=False)
    reason = attempt.problem.text if attempt.problem else attempt.program["unsupported"]
    return {
        "status": status,
        "reason": reason,
        "reason_code": attempt.problem and attempt.problem.code,
        "program": attempt.program,
        "facts": {"ncu": version, "roofs": roofs},
        "seconds": attempt.seconds | {"calibration": round(seconds, 3)},
    }


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
    sizes, own = job.program["sizes"], job.program["dimensions"]
    layers = sizes.get(LAYERS)
    if own["compile"] != NOT_COMPILED or own["gpus"] > 1 or not isinstance(layers, int) or layers <= most:
        return job
    program = job.program | {"sizes": sizes | {LAYERS: most}}
    return replace(job, specification=job.specification | {"program": program})


def _counted(job: Job) -> tuple[Attempt, list[pd.DataFrame]]:
    """What the rounds gave: the program's result in the last of them, and their tables; the first problem ends them.
    They share the time limit."""
    attempt, tables, seconds = Attempt(None), [], 0.0
    for number, of_round in enumerate(ncu_profile.ROUNDS):
        folder = job.scratch / f"round-{number}"
        folder.mkdir()
        own = replace(job, scratch=folder, time_limit_s=max(job.time_limit_s - seconds, 1.0))
        layers = job.specification["layers"]
        attempt = _round(with_layers(own, max(layers // 2, 1) if of_round.half else layers), of_round)
        seconds += attempt.seconds["program"]
        if attempt.problem or attempt.program["status"] != COMPLETE:
            return replace(attempt, seconds={"program": seconds}), []
        tables.append(_table(folder / TABLE))
    problem = None if any(map(len, tables)) else NO_COUNTERS
    return replace(attempt, seconds={"program": seconds}, problem=problem), tables


def _round(job: Job, of_round: ncu_profile.Round) -> Attempt:
    """One process under ncu."""
    result, table = job.scratch / "program.json", job.scratch / TABLE
    program = program_command(job, result, "ncu", lease=job.leases.address)
    # ncu unpacks its sections into HOME. Its lock in TMPDIR lets one ncu count at a time, and stops that of another
    # user: with one of its own, runs on other GPUs of the host are counted at once.
    folders = dict.fromkeys(("HOME", "TMPDIR"), str(job.scratch.resolve()))
    outcome = run_program(
        ncu_profile.counters_command(program, table, of_round),
        environment=allowed_environment(job.specification["environment"]) | folders,
        log=job.log,
        time_limit_s=job.time_limit_s,
        leases=job.leases,
    )
    written = json.loads(result.read_text()) if result.exists() else None
    ended_otherwise = written is not None and written["status"] != COMPLETE
    problem = None if ended_otherwise else _problem(job, table, written, outcome)
    return Attempt(written, {"program": outcome.seconds}, problem)


def _problem(job: Job, table: Path, written: dict | None, outcome: Outcome) -> Problem | None:
    """Why a round gave no table, None where it gave one. A crash is one such reason here: by default nobody asked for
    counters, and a model may bear neither ncu nor the fewer layers that it has there. Its timing fails where it crashes
    by itself."""
    said = outcome.output(job.log) + "".join(_messages(table))
    if refused := problem_of(said):
        return refused
    if outcome.timed_out:
        return TIME_LIMIT
    if written is None:
        if python_crashed(said):
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
        return no_counters()
    return read_counters(path)


def _messages(path: Path) -> Iterator[str]:
    """The lines of ncu's file that are no rows of its table."""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line for line in file if line.startswith("=="))


def _status_of(problem: Problem) -> str:
    """What is refused will be refused again; the rest may go well another time."""
    passing = ("time_limit", "ncu_ended_early", "no_table", "no_counters", CRASHED.code)
    return INCOMPLETE if problem.code in passing else UNSUPPORTED


def _calibrated(job: Job) -> tuple[dict[str, float | None], float]:
    """The rates that this GPU reaches, by roof, and the seconds that it took; raises ProgramFailed where it crashes.
    It has a log of its own, since what ncu says is looked for in the other."""
    job = replace(job, log=job.log.with_name(f"{job.log.stem}_roofs{job.log.suffix}"))
    result = job.scratch / "roofs.json"
    lease = ["--lease", str(job.leases.address)] if job.leases.address else []
    command = [sys.executable, "-m", ROOFS, "--output", str(result), *lease]
    reached, outcome = run_to_result(job, f"roofs of {job.program['run']}", result, command)
    return reached, outcome.seconds
