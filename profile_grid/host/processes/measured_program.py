"""The program that is measured: its command line, and its result."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.problems import Problem
from profile_grid.host.processes.programs import (
    ProcessExit,
    ProgramFailed,
    Started,
    allowed_environment,
    failure_message,
    started_program,
)
from profile_grid.results.results import INCOMPLETE

STARTER = "cs336_model.program"  # notes what a program loads
MODULE = "cs336_model.program.benchmark"


@dataclass(frozen=True)
class Attempt:
    """One try at a capture: what the program reported, the seconds each part took, and why it is not whole."""

    program: dict | None
    seconds: dict[str, float] = field(default_factory=dict)
    problem: Problem | None = None
    profiler: str | None = None  # nsys's version
    host_hidden: bool | None = None  # whether nsys could see neither other processes nor the host's name
    devices: tuple[str | None, ...] = ()  # the GPU of every rank, by a hash; where there are several


def program_start(module: str) -> list[str]:
    """The begin of the command line of a program whose code is noted."""
    return [sys.executable, "-m", STARTER, module]


def program_command(
    job: Job,
    result: Path,
    profiler: str = "none",
    capture: Path | None = None,
    lease: Path | None = None,
    **settings: float,
) -> list[str]:
    """The command line of the measured program; `result` is the JSON it writes, `lease` where it asks for its GPU,
    `settings` are those of its profiler."""
    command = [*program_start(MODULE), "--spec", json.dumps(job.program, sort_keys=True)]
    command += ["--output", str(result), "--profiler", profiler, "--time-limit-s", str(job.time_limit_s)]
    further = {"--capture": capture, "--lease": lease}
    further |= {f"--{name.replace('_', '-')}": value for name, value in settings.items()}
    return command + [text for name, value in further.items() if value is not None for text in (name, str(value))]


def run_to_result(job: Job, what: str, result: Path, command: Sequence[str]) -> tuple[dict, ProcessExit]:
    """What the program wrote to `result`, and how it ended; raises ProgramFailed when it did not write it."""
    outcome = run_for(job, command)
    return result_of(job, what, result, outcome), outcome


def result_of(job: Job, what: str, result: Path, outcome: ProcessExit) -> dict:
    """What a program of the job that has ended wrote to `result`; raises ProgramFailed when it did not write it."""
    if not outcome.succeeded or not result.exists():
        raise ProgramFailed(failure_message(what, outcome, job.log, job.time_limit_s))
    return json.loads(result.read_text())


def stage_output(
    program: dict | None, seconds: dict, facts: dict, problem: Problem | None = None, status: str = INCOMPLETE
) -> dict:
    """What a stage's JSON holds: the program's result, the seconds of each part of the job, and facts of this stage;
    where there was a `problem`, that and `status`."""
    return {
        "status": status if problem else program["status"],
        "reason": problem.text if problem else program["unsupported"],
        "reason_code": problem and problem.code,
        "program": program,
        "facts": facts,
        "seconds": seconds,
    }


def run_for(job: Job, command: Sequence[str]) -> ProcessExit:
    """How a command of the job ended."""
    with started_for(job, command) as program:
        return program.outcome()


def started_for(
    job: Job, command: Sequence[str], further: Mapping[str, str] = MappingProxyType({})
) -> AbstractContextManager[Started]:
    """A command of the job beside a with block: in the environment and within the time that the job is told, by its
    leases; with `further` variables."""
    return started_program(
        command,
        environment=allowed_environment(job.specification["environment"]) | further,
        log=job.log,
        time_limit_s=job.time_limit_s,
        leases=job.leases,
    )
