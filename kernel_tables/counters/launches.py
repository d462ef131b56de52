"""How a launch fills the GPU: occupancy and what limits it, waves of blocks and the tail of the last, and stalls."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from kernel_tables.counters.metrics import (
    LIMITS,
    MULTIPROCESSORS,
    OCCUPANCY,
    OCCUPANCY_POSSIBLE,
    REGISTERS,
    STALLED_BY,
    STALLS,
)

FULL = 99.5  # percent of the warps that a multiprocessor holds: nothing limits


def launches_of(grid: pd.Series, metrics: pd.DataFrame) -> pd.DataFrame:
    """By row, from its grid ("16x6x8") and metrics: occupancy and occupancy_possible (of 1), limited_by ("" where
    nothing does), registers (of a thread), waves, tail (the share of the places for blocks that stays empty in the last
    wave, of those in all waves), stall and second_stall with the share that each has of the time in which a warp waits.
    """
    possible = metrics[OCCUPANCY_POSSIBLE]
    blocks = grid.map(lambda size: math.prod(map(int, size.split("x"))) if size else math.nan).astype("float64")
    waves = blocks / (metrics[MULTIPROCESSORS] * metrics[list(LIMITS.values())].min(axis=1))
    whole = np.ceil(waves)
    return pd.DataFrame(
        {
            "occupancy": metrics[OCCUPANCY] / 100,
            "occupancy_possible": possible / 100,
            "limited_by": _limited_by(metrics).mask(possible.isna() | (possible >= FULL), ""),
            "registers": metrics[REGISTERS],
            "waves": waves,
            "tail": (whole - waves) / whole,
        }
    ).join(_stalls(metrics))


def _limited_by(metrics: pd.DataFrame) -> pd.Series:
    """What allows the fewest blocks; several where they allow as few."""
    limits = metrics[list(LIMITS.values())].set_axis(list(LIMITS), axis=1)
    fewest = limits.min(axis=1)
    rows = limits.eq(fewest, axis=0).to_numpy()
    return pd.Series([" and ".join(limits.columns[row]) for row in rows], metrics.index, dtype="str")


def _stalls(metrics: pd.DataFrame) -> pd.DataFrame:
    """The two largest reasons for which warps wait, and their shares of all such waiting."""
    stalls = metrics[list(STALLS.values())].fillna(0.0).to_numpy()
    total, order = stalls.sum(axis=1), np.argsort(-stalls, axis=1, kind="stable")
    names, rows = np.array([STALLED_BY[name] for name in STALLS], dtype=object), np.arange(len(stalls))
    columns = {}
    for place, heading in enumerate(("stall", "second_stall")):
        value = stalls[rows, order[:, place]]
        columns[heading] = pd.Series(np.where(value > 0, names[order[:, place]], ""), metrics.index, dtype="str")
        columns[f"{heading}_share"] = pd.Series(value / np.where(total > 0, total, np.nan), metrics.index)
    return pd.DataFrame(columns)
