"""How intervals nest: the one around each, and the innermost one over time. Integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernel_tables.attribution.keys import grouped
from kernel_tables.attribution.limits import require_depth
from kernel_tables.attribution.ranges import NONE


@dataclass(frozen=True)
class Nesting:
    """How some intervals nest; an interval is known by its index."""

    parent: np.ndarray  # the interval around each, NONE for an outermost one
    times_ns: np.ndarray  # when the innermost open interval changes, ascending
    innermost: np.ndarray  # that interval from each time on; one NONE more, for index -1: before the first time


def nesting(start_ns: np.ndarray, end_ns: np.ndarray) -> Nesting | None:
    """How these intervals nest, which come in opening order; None where some overlap without nesting.

    An interval of no duration is never open: it has a parent and is none.
    """
    solid = end_ns > start_ns
    closing, ends_ns = _in_order_of_closing(np.flatnonzero(solid), end_ns)
    closed_before = np.searchsorted(ends_ns, start_ns, "right")
    parent = _parents(solid, depth=np.cumsum(solid) - solid - closed_before)
    inner = np.flatnonzero(parent != NONE)
    if (end_ns[inner] > end_ns[parent[inner]]).any():
        return None
    opening = np.arange(len(closing)) + closed_before[solid]  # where each opening stands among all that happens
    closes = np.ones(2 * len(closing), bool)
    closes[opening] = False
    times_ns, innermost = np.empty(len(closes), np.int64), np.full(len(closes) + 1, NONE)
    times_ns[opening], innermost[opening] = start_ns[solid], np.flatnonzero(solid)
    times_ns[closes], innermost[:-1][closes] = ends_ns, parent[closing]
    return Nesting(parent, times_ns, innermost)


def _in_order_of_closing(intervals: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the intervals by end, and of those that end together the inner (later opened) first; their ends)."""
    ends_ns = end_ns[intervals]
    order = np.argsort(ends_ns, kind="stable")
    sorted_ns = ends_ns[order]
    if (sorted_ns[1:] == sorted_ns[:-1]).any():
        order = np.lexsort((-intervals, ends_ns))
    return intervals[order], sorted_ns


def _parents(solid: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """The interval around each: the one of some duration that was opened last on the level above."""
    parent, deepest = np.full(len(depth), NONE), int(depth.max(initial=0))
    require_depth(deepest + 1)
    for above, here in pairwise(grouped(depth, deepest + 1)):
        above = above[solid[above]]
        parent[here] = above[np.searchsorted(above, here) - 1]
    return parent
