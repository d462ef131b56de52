"""Launches of a capture joined with counters, on full name, grid and block.

Matrix multiplies with the same name, grid and block may have different depths (the K of M, N, K), which no profiler
records; their times differ. So if several launches of a configuration were counted, each launch of the capture is
joined with the one that took as long, or with none.
"""

import re

import numpy as np
import pandas as pd

from kernel_tables.counters.metrics import TIME_NS
from kernel_tables.counters.reading import CONFIGURATION
from kernel_tables.counters.work import total_flops
from kernel_tables.kernel_classes.categories import family

# nsys writes the types of a template's numbers, `<(int)4, (bool)1>`, Nsight Compute leaves them and some namespaces out
TYPE_OF_A_NUMBER = re.compile(r"\([A-Za-z_][\w:<> ]*\)(?=-?\d)")
NAMESPACE = re.compile(r"(?:[A-Za-z_]\w*|<unnamed>|\(anonymous namespace\))::")
OF_SEVERAL_DEPTHS = ("gemm", "attention")
SHORTEST, LONGEST = 0.8, 2.5  # counted ÷ captured time: caches are emptied before counting, so it takes longer
SAME_WORK = 0.01
NOT_PROFILED = "not profiled, or its operations on tensor cores were not counted"
AMBIGUOUS = "its name is not told apart from another's"
OTHER_DEPTH = "another depth than was counted, by its time"
NONE = -1


def spelled(name: str) -> str:
    """The name in a spelling that both tools share."""
    return NAMESPACE.sub("", TYPE_OF_A_NUMBER.sub("", name)).replace(" ", "")


def joined(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """The launches (kernel, class, grid, block, duration_ns) with `counted_as`, their row of `counters` or NONE, and
    `not_counted`: why there is none, or ""."""
    keys = _keys(launches)
    ambiguous = _keys_of_several_names(keys, launches["kernel"])
    counted_rows = counters.groupby(_keys(counters).to_numpy(object)).indices
    counted_as, reasons = np.full(len(launches), NONE), np.full(len(launches), NOT_PROFILED, dtype=object)
    for key, rows in launches.groupby(keys.to_numpy(object)).indices.items():
        if key in ambiguous:
            reasons[rows] = AMBIGUOUS
        elif key in counted_rows:
            counted = _of_different_work(counters.iloc[counted_rows[key]])
            several = family(launches["class"].iloc[rows[0]]) in OF_SEVERAL_DEPTHS
            nearest = _nearest(launches["duration_ns"].to_numpy()[rows], counted, several)
            counted_as[rows], reasons[rows] = nearest, np.where(nearest == NONE, OTHER_DEPTH, "")
    return launches.assign(counted_as=counted_as, not_counted=pd.Series(reasons, launches.index, dtype="str"))


def configurations(joined: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and counted depth of joined launches, longest time first: launches, total_ns,
    min_ns and max_ns."""
    by = [*CONFIGURATION, "class", "counted_as", "not_counted"]
    grouped = joined.groupby(by, sort=False, observed=True)["duration_ns"]
    table = grouped.agg(launches="count", total_ns="sum", min_ns="min", max_ns="max").reset_index()
    order = ["total_ns", *CONFIGURATION, "counted_as"]
    return table.sort_values(order, ascending=[False, *[True] * 4], ignore_index=True)


def _keys(table: pd.DataFrame) -> pd.Series:
    spelling = {name: spelled(name) for name in table["kernel"].unique()}
    return table["kernel"].map(spelling).astype("str") + "\n" + table["grid"] + "\n" + table["block"]


def _keys_of_several_names(keys: pd.Series, names: pd.Series) -> set[str]:
    """The keys that more than one name has."""
    pairs = pd.DataFrame({"key": keys, "name": names}).drop_duplicates()
    return set(pairs.loc[pairs["key"].duplicated(), "key"])


def _of_different_work(rows: pd.DataFrame) -> pd.Series:
    """The counted times of the rows whose FLOPs differ from those of all rows before them, by row."""
    distinct: list[int] = []
    flops = total_flops(rows).fillna(0.0).to_numpy()
    for row, count in enumerate(flops):
        if all(abs(count - flops[other]) > SAME_WORK * max(count, flops[other]) for other in distinct):
            distinct.append(row)
    return rows[TIME_NS].iloc[distinct]


def _nearest(duration_ns: np.ndarray, counted_ns: pd.Series, several: bool) -> np.ndarray:
    """By launch, the row that took as long; NONE if there may be `several` depths and no row took as long."""
    if not several:
        return np.full(len(duration_ns), counted_ns.index[0])
    with np.errstate(divide="ignore"):
        ratio = counted_ns.to_numpy()[None, :] / np.maximum(duration_ns, 1)[:, None]
        nearest = np.abs(np.log(ratio)).argmin(axis=1)
    fits = np.take_along_axis(ratio, nearest[:, None], axis=1)[:, 0]
    return np.where((fits >= SHORTEST) & (fits <= LONGEST), counted_ns.index.to_numpy()[nearest], NONE)
