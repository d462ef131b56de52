"""How every launch of a capture fills the GPU, by the counters of its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.counters.joining import joined
from kernel_tables.counters.launches import launches_of
from kernel_tables.counters.reading import CONFIGURATION


@dataclass(frozen=True)
class Filling:
    """By activity, NaN where it has no counters: occupancy and tail (of 1), and waves."""

    occupancy: np.ndarray
    waves: np.ndarray
    tail: np.ndarray


def filling_of(trace: CaptureArrays, counters: pd.DataFrame) -> Filling:
    """The filling of every activity of the capture, from counters that were read of Nsight Compute's table."""
    found, (grid, block) = trace.gpu_activities, trace.launch_sizes
    kernels = np.flatnonzero(found.kind == KINDS.index("kernel"))
    name = found.name[kernels]
    launches = pd.DataFrame(
        {
            "kernel": np.array(found.names, dtype=object)[name],
            "class": np.array(trace.activity_classes, dtype=object)[name],
            "grid": grid[kernels],
            "block": block[kernels],
            "duration_ns": found.duration_ns[kernels],
        }
    )
    metrics = counters.drop(columns=CONFIGURATION).reset_index(drop=True)
    counted_as = joined(launches, counters)["counted_as"]
    told = launches_of(launches["grid"], metrics.reindex(counted_as).set_axis(counted_as.index))
    columns = {name: np.full(len(found), np.nan) for name in ("occupancy", "waves", "tail")}
    for name, values in columns.items():
        values[kernels] = told[name].to_numpy("float64")
    return Filling(**columns)
