"""Launches of a capture joined with counters, on full name, grid and block.

Matrix multiplies with the same name, grid and block may have different depths (the K of M, N, K), which no profiler
records; their times differ. So a launch of them, or of attention, is joined with the counted one whose time is nearest,
or with none if no time is near. Launches of other kernels are joined with the first that was counted.

From the joined counters: how launches fill the GPU (occupancy and its limits, waves of blocks and the tail of the last
wave, stalls), and what limits a kernel: memory, compute, latency, or that it is too small.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.counters import reading, work
from kernel_tables.counters.metrics import (
    LIMITS,
    MULTIPROCESSORS,
    OCCUPANCY,
    OCCUPANCY_POSSIBLE,
    REGISTERS,
    STALLED_BY,
    STALLS,
    TIME_NS,
)
from kernel_tables.kernel_classes.categories import family

# In templates, nsys writes the types of numbers, `<(int)4, (bool)1>`. Nsight Compute omits them, and some namespaces.
NUMBER_TYPE = re.compile(r"\([A-Za-z_][\w:<> ]*\)(?=-?\d)")
NAMESPACE = re.compile(r"(?:[A-Za-z_]\w*|<unnamed>|\(anonymous namespace\))::")
CLASSES_WITH_DEPTHS = ("gemm", "attention")
# The ratio of a kernel's counted to its captured time; it takes longer while it is counted, since caches are emptied.
MIN_TIME_RATIO, MAX_TIME_RATIO = 0.8, 2.5
MAX_FLOPS_DIFFERENCE = 0.01  # as a share, of launches that do the same work
NOT_PROFILED = "not profiled, or its operations on tensor cores were not counted"
AMBIGUOUS = "its name cannot be distinguished from another's"
OTHER_DEPTH = "another depth than was counted, by its time"
NO_COUNTED_ROW = -1
FULL_OCCUPANCY = 99.5  # percent of the warps that fit on a multiprocessor: from here on, nothing limits it


def common_spelling(name: str) -> str:
    """The name in a spelling that both tools share."""
    return NAMESPACE.sub("", NUMBER_TYPE.sub("", name)).replace(" ", "")


def join_counters(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """The launches (kernel, class, grid, block, duration_ns) with `counted_as`, their row of `counters` or
    NO_COUNTED_ROW, and `not_counted`: why there is none, or ""."""
    keys = _keys(launches)
    ambiguous_keys = _keys_of_several_kernels(keys, launches["kernel"])
    counted_rows = counters.groupby(_keys(counters).to_numpy(object)).indices
    counted_as, reasons = np.full(len(launches), NO_COUNTED_ROW), np.full(len(launches), NOT_PROFILED, dtype=object)
    for key, rows in launches.groupby(keys.to_numpy(object)).indices.items():
        if key in ambiguous_keys:
            reasons[rows] = AMBIGUOUS
        elif key in counted_rows:
            counted_ns = _times_of_distinct_work(counters.iloc[counted_rows[key]])
            has_depths = family(launches["class"].iloc[rows[0]]) in CLASSES_WITH_DEPTHS  # all are of one class
            durations_ns = launches["duration_ns"].to_numpy()[rows]
            nearest = _nearest_rows(durations_ns, counted_ns) if has_depths else counted_ns.index[0]
            counted_as[rows], reasons[rows] = nearest, np.where(nearest == NO_COUNTED_ROW, OTHER_DEPTH, "")
    return launches.assign(counted_as=counted_as, not_counted=pd.Series(reasons, launches.index, dtype="str"))


def configurations(joined: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, class, counted_as and not_counted of joined launches, longest total time first; with
    launches, total_ns, min_ns and max_ns."""
    keys = [*reading.CONFIGURATION, "class", "counted_as", "not_counted"]
    grouped = joined.groupby(keys, sort=False, observed=True)["duration_ns"]
    table = grouped.agg(launches="count", total_ns="sum", min_ns="min", max_ns="max").reset_index()
    order = ["total_ns", *reading.CONFIGURATION, "counted_as"]
    return table.sort_values(order, ascending=[False, *[True] * 4], ignore_index=True)


def _keys(table: pd.DataFrame) -> pd.Series:
    """By row, one text for the name in common_spelling, grid and block."""
    spelling = {name: common_spelling(name) for name in table["kernel"].unique()}
    return table["kernel"].map(spelling).astype("str") + "\n" + table["grid"] + "\n" + table["block"]


def _keys_of_several_kernels(keys: pd.Series, kernels: pd.Series) -> set[str]:
    """The keys that several kernels share: their names differ, but not in common_spelling."""
    pairs = pd.DataFrame({"key": keys, "kernel": kernels}).drop_duplicates()
    return set(pairs.loc[pairs["key"].duplicated(), "key"])


def _times_of_distinct_work(rows: pd.DataFrame) -> pd.Series:
    """By row, the counted times of the rows that did different work: the first row, and each further one whose FLOPs
    differ from those of all rows kept before it."""
    distinct: list[int] = []
    flops = work.total_flops(rows).fillna(0.0).to_numpy()
    for row, count in enumerate(flops):
        kept = flops[distinct]
        if (np.abs(count - kept) > MAX_FLOPS_DIFFERENCE * np.maximum(count, kept)).all():
            distinct.append(row)
    return rows[TIME_NS].iloc[distinct]


def _nearest_rows(duration_ns: np.ndarray, counted_ns: pd.Series) -> np.ndarray:
    """By launch, the counted row whose time is nearest, NO_COUNTED_ROW if none took about as long."""
    with np.errstate(divide="ignore"):
        ratio = counted_ns.to_numpy()[None, :] / np.maximum(duration_ns, 1)[:, None]
        nearest = np.abs(np.log(ratio)).argmin(axis=1)
    ratio = np.take_along_axis(ratio, nearest[:, None], axis=1)[:, 0]
    is_near = (ratio >= MIN_TIME_RATIO) & (ratio <= MAX_TIME_RATIO)
    return np.where(is_near, counted_ns.index.to_numpy()[nearest], NO_COUNTED_ROW)


def launch_facts(grid: pd.Series, metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per launch, given by its grid ("16x6x8") and metrics.

    Columns: occupancy and occupancy_possible (both from 0 to 1), limited_by ("" if nothing limits it), registers (per
    thread), waves, tail (places for blocks that stay empty in the last wave, as a share of the places in all waves),
    stall, second_stall and their shares of the time in which warps wait.
    """
    possible = metrics[OCCUPANCY_POSSIBLE]
    blocks = grid.map(lambda size: math.prod(map(int, size.split("x"))) if size else math.nan).astype("float64")
    waves = blocks / (metrics[MULTIPROCESSORS] * metrics[list(LIMITS.values())].min(axis=1))
    all_waves = np.ceil(waves)
    return pd.DataFrame(
        {
            "occupancy": metrics[OCCUPANCY] / 100,
            "occupancy_possible": possible / 100,
            "limited_by": _limited_by(metrics).mask(possible.isna() | (possible >= FULL_OCCUPANCY), ""),
            "registers": metrics[REGISTERS],
            "waves": waves,
            "tail": (all_waves - waves) / all_waves,
        }
    ).join(_stalls(metrics))


def _limited_by(metrics: pd.DataFrame) -> pd.Series:
    """The resource that allows the fewest blocks; several are joined by "and"."""
    limits = metrics[list(LIMITS.values())].set_axis(list(LIMITS), axis=1)
    is_fewest = limits.eq(limits.min(axis=1), axis=0).to_numpy()
    return pd.Series([" and ".join(limits.columns[mask]) for mask in is_fewest], metrics.index, dtype="str")


def _stalls(metrics: pd.DataFrame) -> pd.DataFrame:
    """The two main reasons for which warps wait, and their shares of all waiting."""
    stalls = metrics[list(STALLS.values())].fillna(0.0).to_numpy()
    total, order = stalls.sum(axis=1), np.argsort(-stalls, axis=1, kind="stable")
    reasons, rows = np.array(list(STALLED_BY.values()), dtype=object), np.arange(len(stalls))
    columns = {}
    for place, heading in enumerate(("stall", "second_stall")):
        stall = stalls[rows, order[:, place]]
        columns[heading] = pd.Series(np.where(stall > 0, reasons[order[:, place]], ""), metrics.index, dtype="str")
        columns[f"{heading}_share"] = pd.Series(stall / np.where(total > 0, total, np.nan), metrics.index)
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Filling:
    """Occupancy, waves and tail (see `launch_facts`) by activity, NaN without counters."""

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
    metrics = counters.drop(columns=reading.CONFIGURATION).reset_index(drop=True)
    counted_as = join_counters(launches, counters)["counted_as"]  # positions in `metrics`; NO_COUNTED_ROW gives NaN
    filled = launch_facts(launches["grid"], metrics.reindex(counted_as).set_axis(counted_as.index))
    columns = {name: np.full(len(activities), np.nan) for name in ("occupancy", "waves", "tail")}
    for name, values in columns.items():
        values[kernels] = filled[name].to_numpy("float64")
    return Filling(**columns)


NEAR_ROOF = 0.6  # of a roof; Nsight Compute ("Speed Of Light") calls a kernel below this share of both latency-bound
ONE_WAVE = 1.0  # of blocks; with fewer, the GPU is not filled once (Nsight Compute's rule SmallGrid)
MEMORY, COMPUTE, TOO_SMALL, LATENCY, UNKNOWN = "memory", "compute", "too small", "latency", "not counted"
RULES = {
    MEMORY: (
        f"the kernel reaches at least {100 * NEAR_ROOF:g} % of the DRAM roof, and at least as large a share of it as of"
        " the roof of its FLOPs"
    ),
    COMPUTE: f"the kernel reaches at least {100 * NEAR_ROOF:g} % of the roof of its FLOPs",
    TOO_SMALL: "neither of these, and the kernel's blocks do not fill the GPU once (fewer than one wave)",
    LATENCY: "none of these: the GPU is full, and warps wait for data, instructions or barriers",
}


def verdicts_of(table: pd.DataFrame) -> pd.DataFrame:
    """The `verdict` on every row, and `because`: the numbers that support it, or why there are none. The table has the
    shares of the roofs that `work.rates_of` returns, and the waves of `launch_facts`."""
    columns = ["memory_share", "compute_share", "waves", "not_counted"]
    verdicts = [_verdict(*row) for row in table[columns].itertuples(index=False)]
    return pd.DataFrame(verdicts, columns=["verdict", "because"], index=table.index)


def _verdict(memory_share: float, compute_share: float, waves: float, not_counted: str) -> tuple[str, str]:
    if not_counted or pd.isna(memory_share) or pd.isna(compute_share):
        return UNKNOWN, not_counted or NOT_PROFILED
    if memory_share >= NEAR_ROOF and memory_share >= compute_share:
        return MEMORY, f"DRAM at {_percent(memory_share)} of its roof"
    if compute_share >= NEAR_ROOF:
        return COMPUTE, f"FLOPs at {_percent(compute_share)} of their roof"
    neither = f"DRAM at {_percent(memory_share)}, FLOPs at {_percent(compute_share)} of their roofs"
    if waves < ONE_WAVE:
        return TOO_SMALL, f"{waves:.2g} waves; {neither}"
    return LATENCY, neither


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
