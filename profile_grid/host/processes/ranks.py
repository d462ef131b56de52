"""The program of a run on several GPUs, a process for each rank: its files, command and results."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cs336_model.program.parallel.launch import FIRST_TO_FAIL
from cs336_model.program.without_times import STOPPED
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import final_result, program_command, running_job_program
from profile_grid.host.processes.programs import ProcessExit, ProgramFailed, failure_message
from profile_grid.results.results import COMPLETE

LAUNCHER = "cs336_model.program.parallel.launch"
LOG_FOLDER = "ranks"  # in the folder of the results; there the ranks write their logs, and files to find each other
TIME_KEYS = ("step_seconds", "phase_seconds", "step_no_sync_seconds")


def rank_count(program: Mapping) -> int:
    """The processes of a run: one for each of its GPUs."""
    return program["dimensions"].get("gpus", 1)


def rank_filename(name: str, rank: int) -> str:
    """The file name of a rank: `capture.sqlite` for the first, `capture_rank1.sqlite` for the next."""
    return _with_rank(name, str(rank)) if rank else name


def rank_path(path: Path, rank: int) -> Path:
    """The path of a rank's file, in the folder of the first rank's file `path`."""
    return path.with_name(rank_filename(path.name, rank))


def existing_rank_files(folder: Path, *names: str) -> list[Path]:
    """The files with these names of all ranks, as far as they exist, the first rank's first."""
    of_first_rank = [folder / name for name in names if (folder / name).exists()]
    return of_first_rank + [path for name in names for path in sorted(folder.glob(_with_rank(name, "*")))]


def _with_rank(name: str, rank: str) -> str:
    """The file name with a rank before its suffixes; a pattern for all ranks if `rank` is "*"."""
    stem, dot, suffix = name.partition(".")
    return f"{stem}_rank{rank}{dot}{suffix}"


def launch_command(folder: Path, commands: Sequence[Sequence[str]]) -> list[str]:
    """The command that starts all ranks, which write logs and find each other in `folder`; a single rank's own one."""
    if len(commands) == 1:
        return list(commands[0])
    return [sys.executable, "-m", LAUNCHER, "--folder", str(folder), json.dumps(list(map(list, commands)))]


def first_failed_rank(folder: Path) -> int | None:
    """The rank that failed before the others, from `folder`, in which they found each other; None if none failed."""
    path = folder / FIRST_TO_FAIL
    return int(path.read_text()) if path.exists() else None


def gather_logs(folder: Path, log: Path) -> None:
    """Appends all ranks' logs to that of the run; last that of the first to fail, since messages quote the end."""
    last = folder / f"rank{first_failed_rank(folder)}.log"  # which does not exist if no rank failed
    with log.open("ab") as sink:
        for path in sorted(folder.glob("rank*.log"), key=lambda path: (path == last, len(path.name), path.name)):
            note = ", which failed first" if path == last else ""
            sink.write(f"--- {path.stem}{note}\n".encode() + path.read_bytes())


def results_of_ranks(
    job: Job, title: str, result_path: Path, *, capture: Path | None = None, **options: object
) -> tuple[list[dict], ProcessExit]:
    """Runs the program of a job in every rank. Returns (results as in `read_rank_results`, how the program ended). The
    first rank writes its result to `result_path`, and its capture to `capture` if given; `options` are those of
    `program_command`. Raises ProgramFailed, with the `title` of the program, if a rank wrote nothing or failed without
    a result that says so."""
    logs = result_path.with_name(LOG_FOLDER)
    logs.mkdir()
    commands = [
        program_command(job, rank_path(result_path, rank), capture=capture and rank_path(capture, rank), **options)
        for rank in range(rank_count(job.program))
    ]
    with running_job_program(job, launch_command(logs, commands)) as program:
        outcome = program.wait()
    gather_logs(logs, job.log)
    results = read_rank_results(job, result_path, outcome)
    if not results or not (outcome.succeeded or results[0]["status"] == STOPPED):
        raise ProgramFailed(failure_message(title, outcome, job.log, job.time_limit_s))
    return results, outcome


def read_rank_results(job: Job, result_path: Path, outcome: ProcessExit) -> list[dict]:
    """The results of all ranks in their order; [] if one is missing. If some have no times, only one of these: that of
    the rank that failed first, else the first of these. `outcome` says how the processes ended."""
    paths = [rank_path(result_path, rank) for rank in range(rank_count(job.program))]
    results = {rank: json.loads(path.read_text()) for rank, path in enumerate(paths) if path.exists()}
    without_times = {rank: result for rank, result in results.items() if result["status"] != COMPLETE}
    if without_times:
        failed = first_failed_rank(result_path.with_name(LOG_FOLDER))
        decisive = min(without_times, key=lambda rank: rank != failed)
        return [final_result(without_times[decisive], outcome, job)]
    return [*results.values()] if len(results) == len(paths) else []


def slowest_times(times_by_rank: Sequence[Sequence[float]]) -> list[float]:
    """For each step, the longest time of any rank."""
    return [max(step_times) for step_times in zip(*times_by_rank, strict=True)]


def merge_rank_results(results: Sequence[Mapping]) -> tuple[dict, dict]:
    """(result, facts) of the run. The result is the first rank's, with the time of the slowest rank for every step. The
    facts are the measurements of each rank, and the slowest rank's times without communication; {} for a single rank.
    """
    if len(results) == 1:
        return dict(results[0]), {}
    ranks = [
        {"rank": rank, "device": result["rank_device"], **{key: result[key] for key in TIME_KEYS}}
        | {"peak_allocated_bytes": result["memory"]["peak_allocated_bytes"]}
        for rank, result in enumerate(results)
    ]
    no_sync = slowest_times([result["step_no_sync_seconds"] for result in results])
    run = results[0] | {"step_seconds": slowest_times([result["step_seconds"] for result in results])}
    return run, {"ranks": ranks, "step_no_sync_seconds": no_sync}


def devices_of(results: Sequence[Mapping]) -> tuple[str | None, ...]:
    """The GPU of every rank; () for a single rank."""
    return tuple(result["rank_device"] for result in results) if len(results) > 1 else ()
