"""How launches fill the GPU: occupancy and its limits, waves of blocks and the tail of the last wave, and stalls."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.counters.joining import joined
from kernel_tables.counters.metrics import (
    LIMITS,
    MULTIPROCESSORS,
    OCCUPANCY,
    OCCUPANCY_POSSIBLE,
    REGISTERS,
    STALLED_BY,
    STALLS,
)
from kernel_tables.counters.reading import CONFIGURATION

FULL = 99.5  # percent of the warps that fit on a multiprocessor: from here on nothing limits the occupancy


def launches_of(grid: pd.Series, metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per launch, given by its grid ("16x6x8") and metrics.

    Columns: occupancy, occupancy_possible (of 1), limited_by ("" if nothing does), registers (per thread), waves, tail
    (places for blocks that stay empty in the last wave, as a share of those in all waves), stall, second_stall and
    their shares of the time in which warps wait.
    """
    possible = metrics[OCCUPANCY_POSSIBLE]
    blocks = grid.map(lambda size: math.prod(map(int, size.split("x"))) if size else math.nan).astype("float64")
    waves = blocks / (metrics[MULTIPROCESSORS] * metrics[list(LIMITS.values())].min(axis=1))
    all_waves = np.ceil(waves)
    return pd.DataFrame(
        {
            "occupancy": metrics[OCCUPANCY] / 100,
            "occupancy_possible": possible / 100,
            "limited_by": _limited_by(metrics).mask(possible.isna() | (possible >= FULL), ""),
            "registers": metrics[REGISTERS],
            "waves": waves,
            "tail": (all_waves - waves) / all_waves,
        }
    ).join(_stalls(metrics))


def _limited_by(metrics: pd.DataFrame) -> pd.Series:
    """The resource that allows the fewest blocks; several are joined by "and"."""
    limits = metrics[list(LIMITS.values())].set_axis(list(LIMITS), axis=1)
    fewest = limits.min(axis=1)
    rows = limits.eq(fewest, axis=0).to_numpy()
    return pd.Series([" and ".join(limits.columns[row]) for row in rows], metrics.index, dtype="str")


def _stalls(metrics: pd.DataFrame) -> pd.DataFrame:
    """The two main reasons for which warps wait, and their shares of all waiting."""
    stalls = metrics[list(STALLS.values())].fillna(0.0).to_numpy()
    total, order = stalls.sum(axis=1), np.argsort(-stalls, axis=1, kind="stable")
    names, rows = np.array([STALLED_BY[name] for name in STALLS], dtype=object), np.arange(len(stalls))
    columns = {}
    for rank, heading in enumerate(("stall", "second_stall")):
        value = stalls[rows, order[:, rank]]
        columns[heading] = pd.Series(np.where(value > 0, names[order[:, rank]], ""), metrics.index, dtype="str")
        columns[f"{heading}_share"] = pd.Series(value / np.where(total > 0, total, np.nan), metrics.index)
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Filling:
    """Occupancy, waves and tail (see `launches_of`) by activity, NaN without counters."""

    occupancy: np.ndarray
    waves: np.ndarray
    tail: np.ndarray


def filling_of(trace: CaptureArrays, counters: pd.DataFrame) -> Filling:
    """How every activity of the capture fills the GPU, from the counters that Nsight Compute printed."""
    activities, (grid, block) = trace.gpu_activities, trace.launch_sizes
    kernels = np.flatnonzero(activities.kind == KINDS.index("kernel"))
    name = activities.name[kernels]
    launches = pd.DataFrame(
        {
            "kernel": np.array(activities.names, dtype=object)[name],
            "class": np.array(trace.activity_classes, dtype=object)[name],
            "grid": grid[kernels],
            "block": block[kernels],
            "duration_ns": activities.duration_ns[kernels],
        }
    )
    metrics = counters.drop(columns=CONFIGURATION).reset_index(drop=True)
    counted_as = joined(launches, counters)["counted_as"]
    filled = launches_of(launches["grid"], metrics.reindex(counted_as).set_axis(counted_as.index))
    columns = {name: np.full(len(activities), np.nan) for name in ("occupancy", "waves", "tail")}
    for name, values in columns.items():
        values[kernels] = filled[name].to_numpy("float64")
    return Filling(**columns)
