"""Whether a run fits into memory with another value of a dimension, by measuring it."""

from __future__ import annotations

from dataclasses import dataclass

from profile_grid.errors import OutsideError
from profile_grid.host.processes.job import Job
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.stages.memory import measure as memory
from profile_grid.stages.timing import measure as timing


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
