"""The largest value of a dimension with which a run fits into memory, found by measuring it with few values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profile_grid.errors import OutsideError
from profile_grid.host.processes.job import Job
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.stages.memory import measure as memory
from profile_grid.stages.timing import measure as timing

FITTED = ("context_length", "batch_size")  # the dimensions whose largest value can be measured


def file_name(run: str, dimension: str) -> str:
    """The file, below results/largest, that holds the largest value of a dimension with which a run fits."""
    return f"{run}_{dimension}.json"


def largest_fitting(fits: Callable[[int], bool], start: int) -> int:
    """The largest whole number that fits, where all below one that fits do too; 0 where 1 does not. `start` is tried
    first, then steps that double, so that few are tried where it is near."""
    step, low, high = 1, 0, start
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
    """Whether a step fitted into memory."""

    fits: bool
    peak_bytes: int | None  # reserved on a GPU, requested on a processor; None if memory ran out
    device_total_bytes: int | None  # None on a processor


ONE_STEP = {"warmup_steps": 1, "measured_steps": 1}


def with_value(specification: dict, dimension: str, value: int) -> dict:
    """What the program of a run is told, with another value of one dimension and two steps."""
    program = specification["program"]
    changed = program | ONE_STEP | {"dimensions": program["dimensions"] | {dimension: value}}
    return specification | {"program": changed | {"run": f"{program['run']}, {dimension} {value}"}}


def try_fit(job: Job, limit_bytes: int | None) -> FitResult:
    """One process with the job's program. With a limit it fits where it needs no more than that, else where its step
    ends. Raises ProgramFailed on a crash, OutsideError where there is nothing that could run out."""
    result = timing.measure(job) if limit_bytes is None else memory.measure(job)
    program = result["program"]
    total, on_gpu = program["memory"]["device_total_bytes"], program["machine"]["device"] != "cpu"
    if result["status"] == OUT_OF_MEMORY:
        return FitResult(False, None, total)
    if result["status"] != COMPLETE:
        raise OutsideError(f"{job.program['run']} cannot be measured: {result['reason']}")
    if limit_bytes is None and not on_gpu:
        raise OutsideError(
            "a processor has no memory of its own that could run out: say how much there is, --memory-gib"
        )
    peak = program["memory"]["peak_reserved_bytes"] if limit_bytes is None else memory.counted_peak_bytes(job.folder)
    return FitResult(limit_bytes is None or peak <= limit_bytes, peak, total)
