"""The clocks of several captures of one run beside each other, for a picture: no duration spans two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernel_tables.attribution.steps import measured_steps

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays

BY_TIME_OF_DAY, BY_FIRST_STEP = "the time of day at which each capture began", "the begin of the first step of each"


def offsets_ns(traces: Sequence[CaptureArrays], step_name: str = "step") -> tuple[list[int], str]:
    """(what to add to the times of each capture to have all on the clock of the first, by what they were aligned)."""
    began = [trace.capture.began_utc_ns() for trace in traces]
    if None not in began:
        return [time - began[0] for time in began], BY_TIME_OF_DAY
    first = [_first_step_ns(trace, step_name) for trace in traces]
    return [first[0] - time for time in first], BY_FIRST_STEP


def _first_step_ns(trace: CaptureArrays, step_name: str) -> int:
    """The begin of the first measured step, else of the first range, else of the clock."""
    steps, start_ns = measured_steps(trace, step_name), trace.range_arrays.start_ns
    return int(start_ns[steps[0]]) if len(steps) else int(start_ns[0]) if len(start_ns) else 0
