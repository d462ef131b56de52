"""A capture of about a second, through the same code as every other, to see what the profiler sees on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod
from pathlib import Path

from cs336_model.arguments import OUR_ARGUMENTS
from cs336_model.arithmetic.flops import OWN_CONSTRUCTOR
from cs336_model.program.variants.values import NOT_PARALLEL
from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job, Problem, joined
from profile_grid.host.processes.measured_program import Attempt
from profile_grid.host.processes.programs import ProgramFailed
from profile_grid.stages.capture.capture_problems import errors_and_warnings
from profile_grid.stages.capture.measure import SQLITE, chosen_backend, last_attempt

CONTEXT_LENGTH = 16
ON_ONE_GPU = {"batch_size": 1, "gpus": 1, "parallel": NOT_PARALLEL}
STEPS = {"warmup_steps": 1, "measured_steps": 1}
LITTLE = {"d_model": 64, "num_layers": 1, "num_heads": 2, "d_ff": 128, "rope_theta": 10000.0}
LITTLE_VOCABULARY = 128


@dataclass(frozen=True)
class Smoke:
    """What a smoke capture held, and why it is not what a capture should be; `machine` is None where none ran."""

    backend: str
    machine: dict | None
    ranges: int
    kernels: int
    seconds: float
    problem: Problem | None = None
    warnings: tuple[Problem, ...] = ()


def smoke_specification(specifications: list[dict]) -> dict:
    """The capture of one step with one sequence of 16 tokens: of a little model, or where the grid measures somebody
    else's, whose sizes may not be ours to choose, of its smallest run."""
    smallest = min(specifications, key=lambda one: _size(one["program"]["sizes"]))
    program = smallest["program"]
    length = min(CONTEXT_LENGTH, program["dimensions"]["context_length"])
    cut = {"run": "smoke", "dimensions": program["dimensions"] | ON_ONE_GPU | {"context_length": length}, **STEPS}
    if program["constructor"] == OWN_CONSTRUCTOR and program["arguments"] == OUR_ARGUMENTS:
        cut |= {"vocab_size": LITTLE_VOCABULARY, "sizes": LITTLE}
    return smallest | {"program": program | cut}


def smoke_capture(specification: dict, scratch: Path, time_limit_s: float, leases: Leases) -> Smoke:
    """What came of the capture; it never raises for what is wrong with this machine."""
    job = Job(specification, scratch, scratch, scratch / "smoke.log", time_limit_s, leases)
    started = time.monotonic()
    backend = chosen_backend(specification["backend"], specification["program"]["device"])
    try:
        attempt, trial, _ = last_attempt(job, backend)
    except ProgramFailed as error:
        crashed = Problem("crashed", "the measured program crashed", last_line(error))
        attempt, trial = Attempt(None, problem=crashed), scratch
    seconds = time.monotonic() - started
    machine = attempt.program["machine"] if attempt.program else None
    ranges, kernels, errors, warnings = _seen(trial / SQLITE, machine, backend)
    problem = attempt.problem or _out_of_memory(attempt.program) or joined(errors)
    return Smoke(backend, machine, ranges, kernels, seconds, problem, tuple(warnings))


def _seen(sqlite: Path, machine: dict | None, backend: str) -> tuple[int, int, list[Problem], list[Problem]]:
    """Ranges, kernels, errors and warnings of the capture; nothing where there is none to read."""
    if machine is None or not sqlite.exists():
        return 0, 0, [], []
    try:
        with Trace(sqlite) as trace:
            found = errors_and_warnings(trace, measured_steps=1, device=machine["device"], backend=backend)
            return len(trace.range_instances()), len(trace.activities()), *found
    except TraceError as error:
        return 0, 0, [Problem("unreadable", "the capture cannot be read", str(error))], []


def last_line(error: ProgramFailed) -> str:
    """What a program printed last before it crashed, as the failure's message quotes it."""
    printed = [line.removeprefix("  | ") for line in str(error).splitlines() if line.startswith("  | ")]
    return printed[-1] if printed else str(error).partition("\n")[0]


def _out_of_memory(program: dict | None) -> Problem | None:
    if program is None or program["status"] == "complete":
        return None
    return Problem("out_of_memory", f"memory ran out during {program['out_of_memory']['during']}")


def _size(sizes: dict) -> int:
    """Grows with the number of parameters, whatever the sizes are called."""
    return prod(size for size in sizes.values() if type(size) is int)
