"""The program that is measured: its command line, and what it leaves behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profile_grid.measuring.problems import Problem
from profile_grid.measuring.processes import Outcome, ProgramFailed, allowed_environment, failure_message, run_program

MODULE = "cs336_model.program.benchmark"


@dataclass(frozen=True)
class Attempt:
    """One try at a capture: what the program reported, the seconds each part took, and why it is not whole."""

    program: dict | None
    seconds: dict[str, float] = field(default_factory=dict)
    problem: Problem | None = None
    profiler: str | None = None  # nsys's version
    host_hidden: bool | None = None  # whether nsys could see neither other processes nor the host's name


def program_command(program: dict, result: Path, profiler: str = "none", capture: Path | None = None) -> list[str]:
    """The command line of the measured program; `result` is the JSON it writes."""
    command = [sys.executable, "-m", MODULE, "--spec", json.dumps(program, sort_keys=True)]
    command += ["--output", str(result), "--profiler", profiler]
    return command if capture is None else [*command, "--capture", str(capture)]


def run_to_result(
    command: Sequence[str], what: str, result: Path, *, environment: Sequence[str], log: Path, time_limit_s: float
) -> tuple[dict, Outcome]:
    """What the program wrote to `result`, and how it ended; raises ProgramFailed when it did not write it."""
    outcome = run_program(command, environment=allowed_environment(environment), log=log, time_limit_s=time_limit_s)
    if not outcome.succeeded or not result.exists():
        raise ProgramFailed(failure_message(what, outcome, log, time_limit_s))
    return json.loads(result.read_text()), outcome
