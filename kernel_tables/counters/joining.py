"""Launches of a capture with the counters of what they launched: joined on full name, grid and block.

A matrix multiply of one name, grid and block may be of several depths (the K of M, N, K), which no profiler tells; its
time does. So where several launches of a configuration were counted, each launch of the capture goes to the one that
took as long, and to none where none did.
"""

from __future__ import annotations

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
    """The name as both tools would write it."""
    return NAMESPACE.sub("", TYPE_OF_A_NUMBER.sub("", name)).replace(" ", "")


def joined(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """The launches (kernel, class, grid, block, duration_ns) with `counted_as`, the row of `counters` that tells of
    each, and `not_counted`: why there is none, "" where there is one."""
    keys, of_counters = _keys(launches), _keys(counters)
    ambiguous = _of_several_names(keys, launches["kernel"])
    rows_of = dict(tuple(pd.Series(range(len(counters)), dtype="int64").groupby(np.asarray(of_counters, dtype=object))))
    counted_as, reasons = np.full(len(launches), NONE), np.full(len(launches), NOT_PROFILED, dtype=object)
    for key, places in pd.Series(range(len(launches))).groupby(np.asarray(keys, dtype=object)):
        if key in ambiguous:
            reasons[places] = AMBIGUOUS
        elif key in rows_of:
            rows = _of_different_work(counters.iloc[rows_of[key]])
            several = family(launches["class"].iloc[places.iloc[0]]) in OF_SEVERAL_DEPTHS
            found = _nearest(launches["duration_ns"].to_numpy()[places], rows, several)
            counted_as[places], reasons[places] = found, np.where(found == NONE, OTHER_DEPTH, "")
    return launches.assign(counted_as=counted_as, not_counted=pd.Series(reasons, launches.index, dtype="str"))


def configurations(joined: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration of joined launches, and per depth that was counted, the longest first: launches,
    total_ns, and the shortest and longest of them."""
    by = [*CONFIGURATION, "class", "counted_as", "not_counted"]
    grouped = joined.groupby(by, sort=False, observed=True)["duration_ns"]
    table = grouped.agg(launches="count", total_ns="sum", min_ns="min", max_ns="max").reset_index()
    order = ["total_ns", *CONFIGURATION, "counted_as"]
    return table.sort_values(order, ascending=[False, *[True] * 4], ignore_index=True)


def _keys(table: pd.DataFrame) -> pd.Series:
    spelling = {name: spelled(name) for name in table["kernel"].unique()}
    return table["kernel"].map(spelling).astype("str") + "\n" + table["grid"] + "\n" + table["block"]


def _of_several_names(keys: pd.Series, names: pd.Series) -> set[str]:
    """The keys that stand for more than one name."""
    pairs = pd.DataFrame({"key": keys, "name": names}).drop_duplicates()
    return set(pairs.loc[pairs["key"].duplicated(), "key"])


def _of_different_work(rows: pd.DataFrame) -> pd.Series:
    """The counted times of those rows that do another number of FLOPs than every row before them, by row."""
    kept: list[int] = []
    flops = total_flops(rows).fillna(0.0).to_numpy()
    for place, own in enumerate(flops):
        if all(abs(own - flops[other]) > SAME_WORK * max(own, flops[other]) for other in kept):
            kept.append(place)
    return rows[TIME_NS].iloc[kept]


def _nearest(duration_ns: np.ndarray, counted_ns: pd.Series, several: bool) -> np.ndarray:
    """By launch the row that took as long; NONE where there may be SEVERAL depths and none did."""
    if not several:
        return np.full(len(duration_ns), counted_ns.index[0])
    with np.errstate(divide="ignore"):
        ratio = counted_ns.to_numpy()[None, :] / np.maximum(duration_ns, 1)[:, None]
        nearest = np.abs(np.log(ratio)).argmin(axis=1)
    fits = np.take_along_axis(ratio, nearest[:, None], axis=1)[:, 0]
    return np.where((fits >= SHORTEST) & (fits <= LONGEST), counted_ns.index.to_numpy()[nearest], NONE)
