"""Counts what kernels do, under Nsight Compute, and calibrates the roofs of the GPU.

Each round runs the program once more under ncu: the first counts all kernels, later ones those that it did not count.
If counters are not available (no GPU, nsys or ncu, or no permission), the result is "unsupported", with the cause and
with what removes it; the rest of the run is not affected. Of ncu's table, only names, sizes and metrics are kept
(kernel_tables.counters.reading). Its report, which would hold the environment, is never written.
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
from kernel_recorder.nsys_profile import gpu_is_visible
from kernel_tables.errors import TraceError
from kernel_tables.reading import nsys
from profile_grid.files import replacing
from profile_grid.host.processes import programs
from profile_grid.host.processes.job import INSTALL_NSYS, Attempt, Job, Problem
from profile_grid.host.processes.measured_program import (
    program_command,
    program_result,
    running_job_program,
    stage_output,
)
from profile_grid.results.results import COMPLETE, UNSUPPORTED
from profile_grid.study.stages import COUNTERS

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "no counters: "  # of the texts of problems
NO_GPU = Problem("no_gpu", "kernels are counted on an NVIDIA GPU, and this grid is measured without one")
NO_NSYS = Problem("nsys_missing", f"{PREFIX}they are joined to a capture of nsys, and none is on PATH; {INSTALL_NSYS}")
NO_NCU = Problem(
    "ncu_missing",
    f"{PREFIX}there is no ncu on PATH; install Nsight Compute (https://developer.nvidia.com/nsight-compute, or the CUDA"
    " toolkit's nsight-compute package)",
)
NO_COUNTERS = Problem("no_counters", f"{PREFIX}ncu ended well and counted no kernel")
NO_TABLE = Problem("no_table", f"{PREFIX}the program ended well, and ncu wrote no table that can be read")
CRASHED = Problem(
    "crashed",
    f"{PREFIX}the program crashed under ncu, where its model has fewer layers; see its log. If the model cannot run"
    ' with fewer layers, switch counters off: counters: {runs: ""}',
)
TIME_LIMIT = Problem("time_limit", f"{PREFIX}ncu was killed at the time limit; raise time_limit_s")
REFUSALS = {  # why ncu counts nothing, by words in its output
    "ERR_NVGPUCTRPERM": Problem(
        "no_permission",
        f"{PREFIX}the NVIDIA driver lets only administrators read them (ERR_NVGPUCTRPERM); have the host's"
        " administrator load it with NVreg_RestrictProfilingToAdminUsers=0, or run with CAP_SYS_ADMIN"
        " (https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
    ),
    "driver resource was unavailable": Problem(
        "counters_in_use",
        f"{PREFIX}another tool reads them, such as DCGM; pause it (dcgmi profiling --pause)",
    ),
    "Profiling is not supported on device": Problem(
        "gpu_not_supported",
        f"{PREFIX}ncu does not know this GPU, or a hypervisor hides its counters; try a newer Nsight Compute, or a host"
        " without virtual GPUs",
    ),
}
ROOFS_PROGRAM = "cs336_model.program.roofs"
LAYERS = "num_layers"  # the key among the sizes of a model
RESULT = "program.json"  # in the folder of a round
TRANSIENT_CODES = ("time_limit", "ncu_ended_early", "no_table", "no_counters", "crashed")  # incomplete: try again
(COUNTERS_CSV,) = COUNTERS.files


def measure(job: Job) -> dict:
    """The content of counters.json. Writes the counters into the job's folder; without any, an empty table.

    Raises ProgramFailed if the calibration crashes, or if the code was edited meanwhile.
    """
    if obstacle := _obstacle(job):
        version, roofs, tables = None, {}, []
        attempt = Attempt(None, {"calibration": 0.0}, obstacle)
    else:
        version = ncu_profile.version(ncu_profile.find())
        attempt, tables, roofs = _measure_rounds(job)
    table = _reading_module().join_rounds(tables) if tables else _reading_module().no_counters()
    with replacing(job.folder / COUNTERS_CSV) as path:
        table.to_csv(path, index=False)
    facts, problem = {"ncu": version, "roofs": roofs}, attempt.problem
    output = stage_output(attempt.program, attempt.seconds, facts, problem)
    is_final = problem and problem.code not in TRANSIENT_CODES
    return output | {"status": UNSUPPORTED} if is_final else output


def _obstacle(job: Job) -> Problem | None:
    """Why nothing can be counted on this machine, found without running a program; None if nothing is known."""
    if job.program["device"] == "cpu" or not gpu_is_visible():
        return NO_GPU
    if not nsys.find():
        return NO_NSYS
    return None if ncu_profile.find() else NO_NCU


def with_layers(job: Job, max_layers: int) -> Job:
    """The job with a model of at most `max_layers` layers, to save time: every block launches the same kernels, and ncu
    runs each several times, and restores all memory of the process each time. Compiled models and runs on several GPUs
    keep their layers, since graphs and buckets of gradients depend on them; so do models without the size LAYERS."""
    sizes, dimensions = job.program["sizes"], job.program["dimensions"]
    layers = sizes.get(LAYERS)
    keeps_layers = dimensions["compile"] != NOT_COMPILED or dimensions["gpus"] > 1
    if keeps_layers or not isinstance(layers, int) or layers <= max_layers:
        return job
    program = job.program | {"sizes": sizes | {LAYERS: max_layers}}
    return replace(job, specification=job.specification | {"program": program})


def _measure_rounds(job: Job) -> tuple[Attempt, list[pd.DataFrame], dict[str, float | None]]:
    """(attempt, tables, roofs): what `_tables_of_rounds` returns, and the rates that this GPU reaches, by roof; {}
    without tables. The calibration and the rounds start together, since ncu and its program take 6 s until they ask for
    the GPU; their leases let them use it one after the other."""
    with ExitStack() as background:
        roofs_job = replace(job, log=_extra_log(job, "roofs"))
        calibration = background.enter_context(_calibration(roofs_job))
        rounds = []
        for number, ncu_round in enumerate(ncu_profile.ROUNDS):
            round_job = _job_of_round(job, number)
            rounds.append((round_job, background.enter_context(_running_round(round_job, ncu_round))))
        outcome = calibration.wait()
        attempt, tables = _tables_of_rounds(rounds)
    if not tables:
        return attempt, [], {}
    roofs = program_result(roofs_job, f"roofs of {job.program['run']}", _roofs_file(job), outcome)["rates"]
    return replace(attempt, seconds=attempt.seconds | {"calibration": round(outcome.seconds, 3)}), tables, roofs


def _tables_of_rounds(rounds: Iterable[tuple[Job, programs.RunningProgram]]) -> tuple[Attempt, list[pd.DataFrame]]:
    """(attempt, tables): the last round's attempt, and the counters of all rounds. If a round is incomplete: its
    attempt, and no tables, since the other rounds are of no use then. No tables, either, if no kernel is counted."""
    attempt, tables, seconds = Attempt(None), [], {"program": 0.0, "calibration": 0.0}
    for job, program in rounds:
        attempt = _finished_round(job, program)
        seconds |= attempt.seconds  # those of the last round remain
        if attempt.problem or attempt.program["status"] != COMPLETE:
            return replace(attempt, seconds=seconds), []
        tables.append(_read_counters(job.scratch / COUNTERS_CSV))
    if not any(map(len, tables)):
        return replace(attempt, seconds=seconds, problem=NO_COUNTERS), []
    return replace(attempt, seconds=seconds), tables


def _job_of_round(job: Job, number: int) -> Job:
    """The job of one round: with few layers, its own folder and, except for the first round, its own log."""
    folder, max_layers = job.scratch / f"round-{number}", job.specification["layers"]
    folder.mkdir()
    if ncu_profile.ROUNDS[number].halves_layers:
        max_layers = max(max_layers // 2, 1)
    log = _extra_log(job, folder.name) if number else job.log
    return with_layers(replace(job, scratch=folder, log=log), max_layers)


def _extra_log(job: Job, name: str) -> Path:
    """Another log of the job: programs that run at the same time need a log each."""
    return job.log.with_name(f"{job.log.stem}_{name}{job.log.suffix}")


def _running_round(job: Job, ncu_round: ncu_profile.Round) -> AbstractContextManager[programs.RunningProgram]:
    """Runs one process under ncu, in the background of a with block."""
    program = program_command(job, job.scratch / RESULT, profiler="ncu")
    # ncu unpacks its sections into HOME. Its lock in TMPDIR lets only one ncu count at a time, and fails if another
    # user created it. With folders of their own, runs on several GPUs of the host are counted at once.
    folders = dict.fromkeys(("HOME", "TMPDIR"), str(job.scratch.resolve()))
    return running_job_program(
        job, ncu_profile.counters_command(program, job.scratch / COUNTERS_CSV, ncu_round), folders
    )


def _finished_round(job: Job, running: programs.RunningProgram) -> Attempt:
    """Waits for the end of a round, and returns its attempt."""
    outcome, result_path = running.wait(), job.scratch / RESULT
    program = json.loads(result_path.read_text()) if result_path.exists() else None
    says_why = program is not None and program["status"] != COMPLETE  # then the stage has the program's reason
    problem = None if says_why else _problem_of_round(job, program, outcome)
    return Attempt(program, {"program": outcome.seconds}, problem)


def _problem_of_round(job: Job, program: dict | None, outcome: programs.ProcessExit) -> Problem | None:
    """Why a round gave no counters, or None. Here a crash is a reason, not an error: by default nobody asked for
    counters, and a model may not run under ncu, or with fewer layers. If it crashes without these, the stage timing
    fails. Raises ProgramFailed if the code was edited meanwhile."""
    counters_csv = job.scratch / COUNTERS_CSV
    output = outcome.output(job.log) + "".join(_ncu_messages(counters_csv))
    for words, refusal in REFUSALS.items():
        if words in output:
            return refusal
    if outcome.timed_out:
        return TIME_LIMIT
    if program is None:
        if programs.code_changed(output):
            title = f"counters of {job.program['run']}"
            raise programs.ProgramFailed(programs.failure_message(title, outcome, job.log, job.time_limit_s))
        if programs.python_crashed(output):
            last_line = outcome.output(job.log).rstrip().rpartition("\n")[2]
            return replace(CRASHED, quote=programs.cut_line(last_line))
        return Problem("ncu_ended_early", f"ncu {outcome.description} before the program had written its result")
    try:
        _read_counters(counters_csv)
    except (TraceError, OSError) as error:
        job.append_to_log(str(error))
        return NO_TABLE
    return None


def _read_counters(path: Path) -> pd.DataFrame:
    """The counters in ncu's file; no rows if no kernel was counted. Raises TraceError or OSError without a table."""
    if any("No kernels were profiled" in line for line in _ncu_messages(path)):
        return _reading_module().no_counters()
    return _reading_module().read_counters(path)


def _reading_module() -> ModuleType:
    """The module that reads ncu's tables. It imports pandas, and is imported late, so that the job starts sooner."""
    from kernel_tables.counters import reading

    return reading


def _ncu_messages(path: Path) -> Iterator[str]:
    """The messages among the lines of ncu's file; none if there is no file."""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line for line in file if line.startswith("=="))


def _calibration(job: Job) -> AbstractContextManager[programs.RunningProgram]:
    """Runs the process that measures the rates that this GPU reaches, in the background of a with block."""
    lease = ["--lease", str(job.leases.address)] if job.leases.address else []
    return running_job_program(job, [sys.executable, "-m", ROOFS_PROGRAM, "--output", str(_roofs_file(job)), *lease])


def _roofs_file(job: Job) -> Path:
    return job.scratch / "roofs.json"
