"""The steps of a capture: the ranges of one name that a measured window holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays


def measured_steps(trace: CaptureArrays, step_name: str) -> np.ndarray:
    """The numbers of the ranges STEP_NAME of all processes, in order of time; of those inside `measure`, where there is
    such a range."""
    ranges, paths = trace.range_arrays, trace.range_paths
    is_step = ranges.name == paths.code(step_name)
    if paths.code(WINDOW) != NONE:
        is_step &= paths.inside(WINDOW)[paths.of_node[: len(ranges)]]
    return np.flatnonzero(is_step)
