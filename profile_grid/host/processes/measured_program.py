"""A job of a stage: its settings and leases, and the program that it measures, with a process for each rank of a run on
several GPUs: command lines, files and results."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cs336_model.program.parallel.launch import FIRST_TO_FAIL
from cs336_model.program.without_times import FAILED, OVERDUE, STOPPED, UNFINISHED
from profile_grid.freshness.environment import allowed_variables
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.programs import (
    ProcessExit,
    ProgramFailed,
    RunningProgram,
    failure_message,
    started_program,
)
from profile_grid.results.results import COMPLETE, INCOMPLETE

INSTALL_NSYS = (
    "install Nsight Systems (https://developer.nvidia.com/nsight-systems, or the CUDA toolkit's nsight-systems package)"
)
STARTER = "cs336_model.program"  # notes what a program loads
MODULE = "cs336_model.program.benchmark"
TIMED_OUT = re.compile(r"^Timeout \(\d+:\d\d:\d\d", re.MULTILINE)  # as faulthandler prints it
LAUNCHER = "cs336_model.program.parallel.launch"
LOGS = "ranks"  # the folder, in that of the job or of an attempt, where ranks print and meet
TIMES = ("step_seconds", "phase_seconds", "step_no_sync_seconds")


@dataclass(frozen=True)
class Problem:
    """The code of a cause, and a sentence of this project about it.

    Both are published. The output of another program is not: it may hold paths, names of hosts and users, or a token.
    `quote` keeps a line of it for the terminal; the log has all of it.
    """

    code: str
    text: str
    quote: str = ""

    def __str__(self) -> str:
        return self.text


def joined(problems: list[Problem]) -> Problem | None:
    """Several problems as one, with the code of the first; None if there is none."""
    if not problems:
        return None
    return Problem(problems[0].code, "; ".join(problem.text for problem in problems), problems[0].quote)


@dataclass(frozen=True)
class Job:
    """One stage of one run."""

    specification: dict[str, Any]
    folder: Path  # of the run
    scratch: Path  # deleted when the job ends
    log: Path
    time_limit_s: float
    leases: Leases  # of its programs

    @property
    def program(self) -> dict[str, Any]:
        """The specification of the measured program."""
        return self.specification["program"]

    def append_to_log(self, text: str) -> None:
        """Keeps in the log what is not published."""
        with self.log.open("a", encoding="utf-8", errors="replace") as stream:
            stream.write(f"{text}\n")


def utc(seconds_since_epoch: float) -> str:
    """The moment in ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds_since_epoch))


@dataclass(frozen=True)
class Attempt:
    """One attempt at a capture: the program's result, the seconds of each part, and why the capture is incomplete."""

    program: dict | None
    seconds: dict[str, float] = field(default_factory=dict)
    problem: Problem | None = None
    profiler: str | None = None  # nsys's version
    host_hidden: bool | None = None  # whether nsys could see neither other processes nor the host's name
    devices: tuple[str | None, ...] = ()  # the GPU of every rank, by a hash; if there are several


def program_command(job: Job, result: Path, module: str | None = None, **options: object) -> list[str]:
    """The command line of a measured program, by default MODULE; `result` is the JSON that it writes. `options` are
    those of the program besides the ones that all have; None leaves an option out."""
    options = {
        "spec": json.dumps(job.program, sort_keys=True), "output": result, "time_limit_s": job.time_limit_s,
        "lease": job.leases.address, **options,
    }  # fmt: skip
    arguments = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items() if value is not None}
    return [sys.executable, "-m", STARTER, module or MODULE, *(text for option in arguments.items() for text in option)]


def run_to_result(job: Job, name: str, result: Path, command: Sequence[str]) -> tuple[dict, ProcessExit]:
    """The JSON that the program wrote to `result`, and how it ended; raises ProgramFailed if it did not write it."""
    with started_for(job, command) as program:
        outcome = program.outcome()
    return result_of(job, name, result, outcome), outcome


def result_of(job: Job, name: str, result: Path, outcome: ProcessExit) -> dict:
    """The JSON that a program of the job wrote to `result` before it ended; raises ProgramFailed if it did not."""
    record = finished(json.loads(result.read_text()), outcome, job) if result.exists() else None
    if record is None or not (outcome.succeeded or record["status"] in (FAILED, STOPPED)):
        raise ProgramFailed(failure_message(name, outcome, job.log, job.time_limit_s))
    return record


def finished(record: dict, outcome: ProcessExit, job: Job) -> dict:
    """The result; the draft that a student's code has left by ending the process (cs336_model.program.adapters)
    becomes a failed result that says how it ended, and that of a process killed at its time limit a stopped one."""
    status = record["status"]
    if status == OVERDUE and outcome.timed_out:
        reason = f"stopped at the time limit of {job.time_limit_s:g} s, during {record['reason']}"
        return record | {"status": STOPPED, "reason": reason}
    if status != UNFINISHED:
        return record
    hangs = outcome.timed_out or bool(TIMED_OUT.search(outcome.output(job.log)))
    ending = f"did not end in time (limit {job.time_limit_s:g} s)" if hangs else outcome.description
    return record | {"status": FAILED, "reason": f"{record['reason']}, the process {ending}"}


def stage_output(
    program: dict | None, seconds: dict, facts: dict, problem: Problem | None = None, status: str = INCOMPLETE
) -> dict:
    """The content of a stage's JSON: the program's result, the seconds of each part of the job, and facts of this
    stage; after a `problem`, that and `status`."""
    return {
        "status": status if problem else program["status"],
        "reason": problem.text if problem else program["reason"],
        "reason_code": problem and problem.code,
        "program": program,
        "facts": facts,
        "seconds": seconds,
    }


def started_for(
    job: Job, command: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> AbstractContextManager[RunningProgram]:
    """A command of the job in the background of a with block: in the environment of the job and these `variables`,
    within its time limit, with its leases."""
    return started_program(
        command,
        environment=allowed_variables(os.environ, job.specification["environment"]) | variables,
        log=job.log,
        time_limit_s=job.time_limit_s,
        leases=job.leases,
    )


def rank_count(program: Mapping) -> int:
    """The processes of a run: one for each of its GPUs."""
    return program["dimensions"].get("gpus", 1)


def rank_filename(name: str, rank: int | str) -> str:
    """The file of a rank: `capture.sqlite` for the first, `capture_rank1.sqlite` for the next."""
    stem, dot, suffix = name.partition(".")
    return name if rank == 0 else f"{stem}_rank{rank}{dot}{suffix}"


def existing_rank_files(folder: Path, *names: str) -> list[Path]:
    """The files of these names that exist, those of the first rank and of all others."""
    first_rank = [folder / name for name in names if (folder / name).exists()]
    return first_rank + [path for name in names for path in sorted(folder.glob(rank_filename(name, "*")))]


def launch_command(folder: Path, commands: Sequence[Sequence[str]]) -> list[str]:
    """The command that starts the commands of all ranks, which meet and print in `folder`; of a single rank its
    command."""
    if len(commands) == 1:
        return list(commands[0])
    return [sys.executable, "-m", LAUNCHER, "--folder", str(folder), json.dumps(list(map(list, commands)))]


def first_to_fail(folder: Path) -> int | None:
    """The rank that failed before the others, which meet in `folder`; None if none has failed."""
    noted = folder / FIRST_TO_FAIL
    return int(noted.read_text()) if noted.exists() else None


def gather_logs(folder: Path, log: Path) -> None:
    """Appends the logs of the ranks to the log of the run; last that of the rank that failed before the others."""
    last = folder / f"rank{first_to_fail(folder)}.log"
    with log.open("ab") as sink:
        for path in sorted(folder.glob("rank*.log"), key=lambda path: (path == last, len(path.name), path.name)):
            note = ", which failed first" if path == last else ""
            sink.write(f"--- {path.stem}{note}\n".encode() + path.read_bytes())


def results_of_ranks(
    job: Job, name: str, result: Path, options_of: Callable[[int], Mapping[str, object]]
) -> tuple[list[dict], ProcessExit]:
    """(results, exit): what every rank wrote, or only the result without times if there is one. `options_of` gives the
    options of `program_command` for a rank. Raises ProgramFailed if a rank wrote nothing."""
    logs = result.with_name(LOGS)
    logs.mkdir()
    commands = [
        program_command(job, result.with_name(rank_filename(result.name, rank)), **options_of(rank))
        for rank in range(rank_count(job.program))
    ]
    with started_for(job, launch_command(logs, commands)) as program:
        outcome = program.outcome()
    gather_logs(logs, job.log)
    results = read_rank_results(job, result, outcome)
    if not results or not (outcome.succeeded or results[0]["status"] in (FAILED, STOPPED)):
        raise ProgramFailed(failure_message(name, outcome, job.log, job.time_limit_s))
    return results, outcome


def read_rank_results(job: Job, result: Path, outcome: ProcessExit) -> list[dict]:
    """The results of all ranks in their order; only the result without times if there is one, of several the one of the
    rank that failed first; [] if one is missing. `outcome` says how the processes ended."""
    paths = [result.with_name(rank_filename(result.name, rank)) for rank in range(rank_count(job.program))]
    results = {rank: json.loads(path.read_text()) for rank, path in enumerate(paths) if path.exists()}
    if without_times := {rank: record for rank, record in results.items() if record["status"] != COMPLETE}:
        failed = first_to_fail(result.with_name(LOGS))
        first = min(without_times, key=lambda rank: (rank != failed, without_times[rank]["status"] == UNFINISHED))
        return [finished(without_times[first], outcome, job)]
    return [*results.values()] if len(results) == len(paths) else []


def slowest(times: Sequence[Sequence[float]]) -> list[float]:
    """Per step the longest time of any rank: when all have finished it."""
    return [max(step) for step in zip(*times, strict=True)]


def merge_rank_results(results: Sequence[Mapping]) -> tuple[dict, dict]:
    """(result, facts) of the run: the first rank's result with the times of the slowest rank in every step, and the
    measurements of each rank; no facts for a single rank."""
    if len(results) == 1:
        return dict(results[0]), {}
    ranks = [
        {"rank": rank, "device": result["rank_device"], **{key: result[key] for key in TIMES}}
        | {"peak_allocated_bytes": result["memory"]["peak_allocated_bytes"]}
        for rank, result in enumerate(results)
    ]
    no_sync = slowest([result["step_no_sync_seconds"] for result in results])
    run = results[0] | {"step_seconds": slowest([result["step_seconds"] for result in results])}
    return run, {"ranks": ranks, "step_no_sync_seconds": no_sync}


def devices_of(results: Sequence[Mapping]) -> tuple[str | None, ...]:
    """The GPU of every rank; () for a single rank."""
    return tuple(result["rank_device"] for result in results) if len(results) > 1 else ()
