"""The processes of a run on several GPUs, one for each rank: what they leave, and that as the result of one run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cs336_model.program.parallel.launch import FIRST_TO_FAIL
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import run_for
from profile_grid.host.processes.programs import ProcessExit, ProgramFailed, failure_message
from profile_grid.results.results import COMPLETE

LAUNCHER = "cs336_model.program.parallel.launch"
LOGS = "ranks"  # the folder, in that of the job or of an attempt, where ranks print and meet


def rank_count(program: Mapping) -> int:
    """How many processes a run has: one for each of its GPUs."""
    return program["dimensions"].get("gpus", 1)


def rank_filename(name: str, rank: int | str) -> str:
    """The file of a rank: `capture.sqlite` for the first, `capture_rank1.sqlite` for the next."""
    path = Path(name)
    return name if rank == 0 else f"{path.stem}_rank{rank}{path.suffix}"


def existing_rank_files(folder: Path, *names: str) -> list[Path]:
    """The files of these names that exist, those of the first rank and of all others."""
    first_rank = [folder / name for name in names if (folder / name).exists()]
    return first_rank + [path for name in names for path in sorted(folder.glob(rank_filename(name, "*")))]


def launch_command(folder: Path, commands: Sequence[Sequence[str]]) -> list[str]:
    """The command that starts those of all ranks, which meet and print in `folder`; of one rank its own."""
    if len(commands) == 1:
        return list(commands[0])
    return [sys.executable, "-m", LAUNCHER, "--folder", str(folder), json.dumps(list(map(list, commands)))]


def gather_logs(folder: Path, log: Path) -> None:
    """Appends what the ranks printed to the log of the run; last what printed the one that failed before the others."""
    first = folder / FIRST_TO_FAIL
    last = folder / f"rank{first.read_text()}.log" if first.exists() else None
    paths = sorted(folder.glob("rank*.log"), key=lambda path: (path == last, len(path.name), path.name))
    with log.open("ab") as sink:
        for path in paths:
            sink.write(
                f"--- {path.stem}{', which failed first' if path == last else ''}\n".encode() + path.read_bytes()
            )


def results_of_ranks(
    job: Job, what: str, result: Path, command_of: Callable[[int], Sequence[str]]
) -> tuple[list[dict], ProcessExit]:
    """(results, exit): what every rank wrote, or only the result without times if there is one. Raises ProgramFailed if
    a rank wrote nothing."""
    logs = result.with_name(LOGS)
    logs.mkdir()
    outcome = run_for(job, launch_command(logs, [command_of(rank) for rank in range(rank_count(job.program))]))
    gather_logs(logs, job.log)
    written = written_by_ranks(job, result)
    if not outcome.succeeded or not written:
        raise ProgramFailed(failure_message(what, outcome, job.log, job.time_limit_s))
    return written, outcome


def written_by_ranks(job: Job, result: Path) -> list[dict]:
    """What the ranks wrote, in their order; only the result without times if there is one; [] if one is missing."""
    paths = [result.with_name(rank_filename(result.name, rank)) for rank in range(rank_count(job.program))]
    written = [json.loads(path.read_text()) for path in paths if path.exists()]
    if without_times := [record for record in written if record["status"] != COMPLETE]:
        return without_times[:1]
    return written if len(written) == len(paths) else []


def slowest(times: Sequence[Sequence[float]]) -> list[float]:
    """Per step the longest time of any rank: when all have finished it."""
    return [max(step) for step in zip(*times, strict=True)]


def merge_rank_results(written: Sequence[Mapping]) -> tuple[dict, dict]:
    """(result, facts) of the run: the first rank's result with the times of the slowest rank in every step, and what
    each rank measured; no facts for a single rank."""
    if len(written) == 1:
        return dict(written[0]), {}
    kept = ("step_seconds", "phase_seconds", "step_no_sync_seconds")
    ranks = [
        {"rank": rank, "device": rank_result["rank_device"], **{key: rank_result[key] for key in kept}}
        | {"peak_allocated_bytes": rank_result["memory"]["peak_allocated_bytes"]}
        for rank, rank_result in enumerate(written)
    ]
    no_sync = slowest([rank_result["step_no_sync_seconds"] for rank_result in written])
    run = written[0] | {"step_seconds": slowest([rank_result["step_seconds"] for rank_result in written])}
    return run, {"ranks": ranks, "step_no_sync_seconds": no_sync}


def devices_of(ranks: Sequence[Mapping]) -> tuple[str | None, ...]:
    """The GPU of every rank where there are several."""
    return tuple(rank_result["rank_device"] for rank_result in ranks) if len(ranks) > 1 else ()
