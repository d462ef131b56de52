"""The steps of a capture, the phases and parts inside them, and the clocks of several captures aligned by them."""

from collections.abc import Iterable, Sequence

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE

OUTSIDE = "(outside)"  # the phase and the part where no range is open inside the step


def measured_steps(trace: CaptureArrays, step_name: str) -> np.ndarray:
    """The numbers of the ranges `step_name` of all processes, in order of time; if there is a range `measure`, only
    those inside it."""
    ranges, paths = trace.range_arrays, trace.range_paths
    is_step = ranges.name == paths.code(step_name)
    if paths.code(WINDOW) != NONE:
        is_step &= paths.is_inside(WINDOW)[paths.of_node[: len(ranges)]]
    return np.flatnonzero(is_step)


def phases_and_parts(paths: Iterable[tuple[str, ...]], step_name: str) -> tuple[list[str], list[str]]:
    """The phase and the part of every path: the name directly inside the step, and the innermost name.

    Without a step, the outermost name is the phase.
    """
    phases, parts = [], []
    for path in paths:
        inner = path[path.index(step_name) + 1 :] if step_name in path else path
        phases.append(inner[0] if inner else OUTSIDE)
        parts.append(inner[-1] if inner else OUTSIDE)
    return phases, parts


def clock_offsets_ns(traces: Sequence[CaptureArrays], step_name: str = "step") -> list[int]:
    """What to add to the times of each capture to draw it on the clock of the first; not exact enough for durations.
    Clocks are aligned by the time of day at which each capture began, or if that is unknown, by the first steps."""
    began_ns = [trace.capture.began_utc_ns() for trace in traces]
    if None not in began_ns:
        return [time_ns - began_ns[0] for time_ns in began_ns]
    starts_ns = [_first_step_ns(trace, step_name) for trace in traces]
    return [starts_ns[0] - start_ns for start_ns in starts_ns]


def _first_step_ns(trace: CaptureArrays, step_name: str) -> int:
    """The start of the first measured step, else of the first range, else 0."""
    steps, start_ns = measured_steps(trace, step_name), trace.range_arrays.start_ns
    if len(steps):
        return int(start_ns[steps[0]])
    return int(start_ns[0]) if len(start_ns) else 0
