"""A test capture of about a second, made by the code that makes all captures, to check the profiler on this machine."""

import time
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from cs336_model.arguments import PROJECT_ARGUMENTS
from cs336_model.arithmetic.flops import PROJECT_CONSTRUCTOR
from cs336_model.program.variants.values import ADAMW, EAGER, NOT_PARALLEL
from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes import programs
from profile_grid.host.processes.job import Attempt, Job, Problem, combined_problem
from profile_grid.stages.capture.capture_problems import errors_and_warnings
from profile_grid.stages.capture.measure import SQLITE, chosen_backend, last_attempt

MAX_CONTEXT_LENGTH = 16
SMALL_DIMENSIONS = {"batch_size": 1, "gpus": 1, "parallel": NOT_PARALLEL, "attention": EAGER, "optimizer": ADAMW}
ONE_STEP = {"warmup_steps": 1, "measured_steps": 1}
SMALL_SIZES = {"d_model": 64, "num_layers": 1, "num_heads": 2, "d_ff": 128, "rope_theta": 10000.0}
SMALL_VOCABULARY = 128


@dataclass(frozen=True)
class SmokeCapture:
    """The content of a smoke capture, and its problems."""

    backend: str
    machine: dict | None  # None if the program did not run
    ranges: int  # number of ranges
    kernels: int  # number of kernels, or operators
    seconds: float  # that it took
    problem: Problem | None = None  # why the capture is incomplete
    warnings: tuple[Problem, ...] = ()


def smoke_specification(specifications: list[dict]) -> dict:
    """The specification of a capture of one step, after one warm-up step, with one sequence of at most 16 tokens. The
    model is a small one of this project; if the grid's models are custom, it is the smallest of them."""
    smallest = min(specifications, key=lambda specification: _relative_size(specification["program"]["sizes"]))
    program = smallest["program"]
    length = min(MAX_CONTEXT_LENGTH, program["dimensions"]["context_length"])
    dimensions = program["dimensions"] | SMALL_DIMENSIONS | {"context_length": length}
    changes = {"run": "smoke", "dimensions": dimensions, **ONE_STEP}
    if program["constructor"] == PROJECT_CONSTRUCTOR and program["arguments"] == PROJECT_ARGUMENTS:
        changes |= {"vocab_size": SMALL_VOCABULARY, "sizes": SMALL_SIZES}
    return smallest | {"program": program | changes}


def smoke_capture(specification: dict, scratch: Path, time_limit_s: float, leases: Leases) -> SmokeCapture:
    """Makes the capture. Problems of this machine are a part of it, and raise no error."""
    log = scratch / "smoke.log"
    job = Job(specification, folder=scratch, scratch=scratch, log=log, time_limit_s=time_limit_s, leases=leases)
    started = time.monotonic()
    backend = chosen_backend(specification["backend"], specification["program"]["device"])
    try:
        attempt, folder, _ = last_attempt(job, backend)
    except programs.ProgramFailed as error:
        crashed = Problem("crashed", "the measured program crashed", quote=last_line(error))
        attempt, folder = Attempt(program=None, problem=crashed), scratch
    seconds = time.monotonic() - started
    machine = attempt.program["machine"] if attempt.program else None
    smoke = _with_content(folder / SQLITE, SmokeCapture(backend, machine, ranges=0, kernels=0, seconds=seconds))
    problem = attempt.problem or _problem_of_program(attempt.program) or smoke.problem
    return replace(smoke, problem=problem)


def _with_content(sqlite: Path, smoke: SmokeCapture) -> SmokeCapture:
    """The smoke capture with its ranges, kernels, problem and warnings; unchanged if there is no file to read."""
    if smoke.machine is None or not sqlite.exists():
        return smoke
    try:
        with Trace(sqlite) as trace:
            device = smoke.machine["device"]
            errors, warnings = errors_and_warnings(trace, measured_steps=1, device=device, backend=smoke.backend)
            ranges, kernels = len(trace.range_instances()), len(trace.activities())
            return replace(
                smoke, ranges=ranges, kernels=kernels, problem=combined_problem(errors), warnings=tuple(warnings)
            )
    except TraceError as error:
        return replace(smoke, problem=Problem("unreadable", "the capture cannot be read", quote=str(error)))


def last_line(error: programs.ProgramFailed) -> str:
    """The last line that a program printed, which the error quotes below its own first line; else that first line."""
    printed = [line.removeprefix("  | ") for line in str(error).splitlines() if line.startswith("  | ")]
    return printed[-1] if printed else str(error).partition("\n")[0]


def _problem_of_program(program: dict | None) -> Problem | None:
    """Why the program has no times; None if it has times, or did not run."""
    if program is None or program["status"] == "complete":
        return None
    failure = program["out_of_memory"]
    return Problem(program["status"], f"memory ran out during {failure['during']}" if failure else program["reason"])


def _relative_size(sizes: dict) -> int:
    """A number that grows with the number of parameters, whatever the names of the sizes."""
    return prod(size for size in sizes.values() if type(size) is int)  # true and false are no sizes
