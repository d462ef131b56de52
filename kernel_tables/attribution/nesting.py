"""Which ranges are open on one thread over time, and how they nest. Integer nanoseconds.

Ranges of a thread may overlap without nesting (in different domains, or start/end ranges). They are cut into segments
that nest: while a range is open, the ranges around it change only when one that was opened before it ends. Cut at those
times, each segment has the same ranges around it from start to end, and is within one segment of each of them.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution import arrays, limits
from kernel_tables.attribution.ranges import NONE, Ranges


class ThreadRanges:
    """The ranges of one thread as nodes: a node is a range, or a segment of one, with the ranges around it."""

    def __init__(self, thread_id: int, range_numbers: np.ndarray, ranges: Ranges, next_node: int):
        """`range_numbers` are those of this thread, ascending. The node of a range, or of its first segment, is the
        number of the range; further segments get nodes from `next_node` on."""
        self.thread_id = thread_id
        self.nodes = range_numbers  # in opening order
        self.range_numbers = range_numbers  # by node
        self.ends_ns = ranges.end_ns[range_numbers]  # by node, the earliest end of the ranges in its chain
        self.segment_nodes = 0  # the number of nodes from `next_node` on that are used
        start_ns = ranges.start_ns[range_numbers]
        self.first_ns, self.last_ns = int(start_ns[0]), int(self.ends_ns.max())
        nesting = nesting_of(start_ns, self.ends_ns)
        if nesting is None:
            segments = segments_that_nest(start_ns, self.ends_ns)
            nesting = nesting_of(segments.start_ns, segments.end_ns)
            is_further = segments.start_ns > start_ns[segments.range]
            self.segment_nodes = int(is_further.sum())
            self.range_numbers, self.ends_ns = range_numbers[segments.range], segments.end_ns
            self.nodes = self.range_numbers.copy()
            self.nodes[is_further] = next_node + np.arange(self.segment_nodes)
        nodes_and_none = np.append(self.nodes, NONE)  # NONE is at the index NONE
        self.parents = nodes_and_none[nesting.parent]
        self._times_ns, self._innermost = nesting.times_ns, nodes_and_none.astype(np.int32)[nesting.innermost]

    def nodes_at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost node that is open at each time, NONE if none is."""
        return self._innermost[np.searchsorted(self._times_ns, times_ns, "right") - 1]


@dataclass(frozen=True)
class Nesting:
    """How intervals nest. An interval is given by its index."""

    parent: np.ndarray  # the interval around each, NONE for an outermost one
    times_ns: np.ndarray  # when the innermost open interval changes, ascending
    innermost: np.ndarray  # that interval from each time on; at the end NONE, which index -1 finds before the first


def nesting_of(start_ns: np.ndarray, end_ns: np.ndarray) -> Nesting | None:
    """How these intervals nest, given in opening order; None if some overlap without nesting.

    An interval without a duration is never open: it may have a parent, and is the parent of none.
    """
    is_solid = end_ns > start_ns
    closing, ends_ns = _in_order_of_closing(np.flatnonzero(is_solid), end_ns)
    closed_before = np.searchsorted(ends_ns, start_ns, "right")
    opened_before = np.cumsum(is_solid) - is_solid
    parent = _parents(is_solid, depth=opened_before - closed_before)
    inner = np.flatnonzero(parent != NONE)
    if (end_ns[inner] > end_ns[parent[inner]]).any():
        return None
    # Openings and closings are events in order of time; of equal times, closings come first.
    opening = np.arange(len(closing)) + closed_before[is_solid]  # the position of each opening among the events
    is_closing = np.ones(2 * len(closing), bool)
    is_closing[opening] = False
    times_ns, innermost = np.empty(len(is_closing), np.int64), np.full(len(is_closing) + 1, NONE)
    times_ns[opening], innermost[opening] = start_ns[is_solid], np.flatnonzero(is_solid)
    times_ns[is_closing], innermost[:-1][is_closing] = ends_ns, parent[closing]
    return Nesting(parent, times_ns, innermost)


def _in_order_of_closing(intervals: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The intervals by end, the inner (later opened) first where ends are equal; and their ends."""
    ends_ns = end_ns[intervals]
    order = np.argsort(ends_ns, kind="stable")
    sorted_ns = ends_ns[order]
    if (sorted_ns[1:] == sorted_ns[:-1]).any():
        order = np.lexsort((-intervals, ends_ns))
    return intervals[order], sorted_ns


def _parents(is_solid: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """The interval around each: the last one with a duration that was opened on the level above."""
    parent, deepest = np.full(len(depth), NONE), int(depth.max(initial=0))
    limits.require_depth(deepest + 1)
    for above, level in pairwise(arrays.positions_by_group(depth, deepest + 1)):
        above = above[is_solid[above]]
        parent[level] = above[np.searchsorted(above, level) - 1]
    return parent


class RangeSegments(NamedTuple):
    """Segments of ranges in opening order: by start, then by range."""

    range: np.ndarray  # index of the range
    start_ns: np.ndarray
    end_ns: np.ndarray


def segments_that_nest(start_ns: np.ndarray, end_ns: np.ndarray) -> RangeSegments:
    """The segments of these ranges, given in opening order; a range that is not cut is one segment."""
    cut, cuts_ns = _cuts(start_ns, end_ns)
    number = np.arange(len(start_ns))
    segment_range = np.repeat(number, np.bincount(cut, minlength=len(number)) + 1)
    is_first = np.append(True, segment_range[1:] != segment_range[:-1])
    starts_ns, ends_ns = (np.empty(len(segment_range), np.int64) for _ in range(2))
    starts_ns[is_first], starts_ns[~is_first] = start_ns, cuts_ns
    is_last = np.append(is_first[1:], True)
    ends_ns[is_last], ends_ns[~is_last] = end_ns, cuts_ns
    order = np.argsort(starts_ns, kind="stable")
    return RangeSegments(segment_range[order], starts_ns[order], ends_ns[order])


def _cuts(start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The (range, time) of each cut: a range is cut where an earlier one ends. Sorted by range, then time."""
    cut: list[int] = []
    cuts_ns: list[int] = []
    open_ranges: list[int] = []  # in opening order
    solid = np.flatnonzero(end_ns > start_ns)  # ranges with a duration
    not_opened, starts_ns, ends_ns = deque(solid.tolist()), start_ns.tolist(), end_ns.tolist()
    by_end = solid[np.argsort(end_ns[solid], kind="stable")].tolist()
    for time_ns, ending in groupby(by_end, key=ends_ns.__getitem__):
        while not_opened and starts_ns[not_opened[0]] < time_ns:
            open_ranges.append(not_opened.popleft())
        first = bisect_left(open_ranges, next(ending))
        still_open = [number for number in open_ranges[first:] if ends_ns[number] > time_ns]
        open_ranges[first:] = still_open
        cut += still_open
        cuts_ns += [time_ns] * len(still_open)
        limits.require_pairs(len(cut), "pairs of ranges of one thread that overlap without nesting")
    order = np.lexsort((cuts_ns, cut))
    return np.array(cut, np.int64)[order], np.array(cuts_ns, np.int64)[order]
