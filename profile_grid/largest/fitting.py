"""The search for the largest value of a dimension with which a run fits into memory: few values are measured."""

from collections.abc import Callable
from dataclasses import dataclass

from profile_grid.errors import OutsideError
from profile_grid.host.processes.job import Job
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.stages.memory import measure as memory
from profile_grid.stages.timing import measure as timing

SEARCHABLE_DIMENSIONS = ("context_length", "batch_size")
ONE_STEP = {"warmup_steps": 1, "measured_steps": 1}


def file_name(run: str, dimension: str) -> str:
    """The name of the file in results/largest with the result of a search."""
    return f"{run}_{dimension}.json"


def largest_fitting(fits: Callable[[int], bool], start: int) -> int:
    """The largest integer that fits, if all smaller ones fit, too; 0 if 1 does not. Tries `start` first, then
    steps that double: few tries are needed if `start` is close."""
    low, high, step = 0, start, 1  # below, `low` fits (0 by definition), and `high` does not, once it was tried
    if fits(start):
        low, high = start, start + 1
        while fits(high):
            step *= 2
            low, high = high, high + step
    else:
        while high - step > 0 and not fits(high - step):
            high, step = high - step, 2 * step
        low = max(high - step, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class FitResult:
    """Whether a step fits into memory."""

    fits: bool
    peak_bytes: int | None  # reserved on a GPU, requested on a CPU; None if memory ran out
    device_total_bytes: int | None  # None on a CPU


def with_value(specification: dict, dimension: str, value: int) -> dict:
    """The specification of a run with another value of one dimension, one warm-up step and one measured step."""
    program = specification["program"]
    dimensions = program["dimensions"] | {dimension: value}
    name = f"{program['run']}, {dimension} {value}"  # for messages
    return specification | {"program": program | ONE_STEP | {"dimensions": dimensions, "run": name}}


def try_fit(job: Job, limit_bytes: int | None) -> FitResult:
    """Runs the job's program once. It fits if it needs at most `limit_bytes`, or without a limit if memory does not run
    out. Raises ProgramFailed on a crash, OutsideError on a CPU without a limit, or if nothing can be measured.

    Only the stage memory counts the bytes that are compared with a limit; timing is faster, and shows what runs out."""
    result = timing.measure(job) if limit_bytes is None else memory.measure(job)
    program = result["program"]
    total, on_gpu = program["memory"]["device_total_bytes"], program["machine"]["device"] != "cpu"
    if result["status"] == OUT_OF_MEMORY:
        return FitResult(fits=False, peak_bytes=None, device_total_bytes=total)
    if result["status"] != COMPLETE:
        raise OutsideError(f"{job.program['run']} cannot be measured: {result['reason']}")
    if limit_bytes is None and not on_gpu:
        raise OutsideError("a CPU has no separate memory that could run out; set a limit: --memory-gib")
    peak = program["memory"]["peak_reserved_bytes"] if limit_bytes is None else memory.counted_peak_bytes(job.folder)
    fits = limit_bytes is None or peak <= limit_bytes
    return FitResult(fits=fits, peak_bytes=peak, device_total_bytes=total)
