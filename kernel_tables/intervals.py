"""Unions, intersections, gaps and covered time of half-open intervals of integer nanoseconds."""

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

BLOCK = 1 << 18  # how many lengths are summed at once, since a long array of lengths takes memory


@dataclass(frozen=True)
class Intervals:
    """Intervals [start, end) that are ascending, not empty, and neither overlap nor touch; `union` makes them."""

    start_ns: np.ndarray
    end_ns: np.ndarray

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def lengths_ns(self) -> np.ndarray:
        return self.end_ns - self.start_ns

    @property
    def total_ns(self) -> int:
        blocks = [slice(first, first + BLOCK) for first in range(0, len(self), BLOCK)]
        return sum(int((self.end_ns[block] - self.start_ns[block]).sum()) for block in blocks)


NOTHING = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start_ns: np.ndarray, end_ns: np.ndarray) -> Intervals:
    """The time covered by at least one of the intervals, which may be in any order and empty."""
    is_not_empty = end_ns > start_ns
    if not is_not_empty.all():
        start_ns, end_ns = start_ns[is_not_empty], end_ns[is_not_empty]
    if not len(start_ns):
        return NOTHING
    if (start_ns[1:] > end_ns[:-1]).all():
        return Intervals(start_ns, end_ns)  # no copies: those of long arrays take time and memory
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reached = np.maximum.accumulate(end_ns)
    is_first = np.append(True, start_ns[1:] > reached[:-1])
    return Intervals(start_ns[is_first], reached[np.append(is_first[1:], True)])


def unions(start_ns: np.ndarray, end_ns: np.ndarray, group: np.ndarray) -> tuple[Intervals, np.ndarray]:
    """The union of each group of intervals, one after the other, and the group of each interval in the result. `group`
    is the number of the group of each interval, from 0."""
    is_not_empty = end_ns > start_ns
    start_ns, end_ns, group = start_ns[is_not_empty], end_ns[is_not_empty], group[is_not_empty].astype(np.int64)
    if not len(start_ns):
        return NOTHING, group
    order = np.lexsort((start_ns, group))
    start_ns, group = start_ns[order], group[order]
    ends, end_index = np.unique(end_ns[order], return_inverse=True)
    # A later group has higher keys, so that the running maximum starts again with each group.
    key = group * len(ends) + end_index.reshape(-1)
    reached = ends[np.maximum.accumulate(key) % len(ends)]
    first = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (start_ns[1:] > reached[:-1])))
    return Intervals(start_ns[first], reached[np.append(first[1:], len(reached)) - 1]), group[first]


def intersection(*operands: Intervals) -> Intervals:
    """The time that all of `operands` cover."""
    return reduce(_intersection_of_two, operands)


def gaps(covered: Intervals, first_ns: int, last_ns: int, least_ns: int = 1) -> Intervals:
    """The time from `first_ns` to `last_ns` that is not covered, in stretches of at least `least_ns`."""
    inner = np.flatnonzero(covered.start_ns[1:] - covered.end_ns[:-1] >= least_ns)
    start_ns = np.concatenate([[first_ns], covered.end_ns[inner], covered.end_ns[-1:]])
    end_ns = np.concatenate([covered.start_ns[:1], covered.start_ns[inner + 1], [last_ns]])
    np.clip(start_ns, first_ns, last_ns, out=start_ns)
    np.clip(end_ns, first_ns, last_ns, out=end_ns)
    is_long = end_ns - start_ns >= least_ns
    return Intervals(start_ns, end_ns) if is_long.all() else Intervals(start_ns[is_long], end_ns[is_long])


def difference(covered: Intervals, *others: Intervals) -> Intervals:
    """The covered time that none of `others` covers."""
    if not len(covered):
        return NOTHING
    first_ns, last_ns = int(covered.start_ns[0]), int(covered.end_ns[-1])
    return intersection(covered, *(gaps(other, first_ns, last_ns) for other in others))


def covered_ns(intervals: Intervals, start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """The covered time of each [start, end); these may be in any order and overlap."""
    return np.maximum(_covered_before(intervals, end_ns) - _covered_before(intervals, start_ns), 0)


def covered_between_ns(intervals: Intervals, first_ns: int, last_ns: int) -> int:
    """The covered time from `first_ns` to `last_ns`. Unlike covered_ns, it makes no long arrays."""
    first = np.searchsorted(intervals.end_ns, first_ns, "right")
    last = np.searchsorted(intervals.start_ns, last_ns, "left")
    start_ns, end_ns = intervals.start_ns[first:last], intervals.end_ns[first:last]
    if not len(start_ns):
        return 0
    outside_ns = max(first_ns - int(start_ns[0]), 0) + max(int(end_ns[-1]) - last_ns, 0)
    return Intervals(start_ns, end_ns).total_ns - outside_ns


class OverlappingPairs(NamedTuple):
    """Pairs of intervals that overlap."""

    index: np.ndarray  # of the one interval
    other_index: np.ndarray  # of the other interval
    start_ns: np.ndarray  # of the overlap
    end_ns: np.ndarray


def overlapping_pairs(start_ns: np.ndarray, end_ns: np.ndarray, others: Intervals) -> OverlappingPairs:
    """The pairs of one of the intervals [start, end), which may be in any order, and one of `others` that overlap."""
    first = np.searchsorted(others.end_ns, start_ns, "right")
    count = np.maximum(np.searchsorted(others.start_ns, end_ns, "left") - first, 0)
    index = np.repeat(np.arange(len(start_ns)), count)
    # Of each interval: first, first + 1, ..., first + count - 1.
    other_index = np.arange(len(index)) + np.repeat(first - np.cumsum(count) + count, count)
    starts_ns = np.maximum(start_ns[index], others.start_ns[other_index])
    return OverlappingPairs(index, other_index, starts_ns, np.minimum(end_ns[index], others.end_ns[other_index]))


def _intersection_of_two(covered: Intervals, other: Intervals) -> Intervals:
    overlaps = overlapping_pairs(covered.start_ns, covered.end_ns, other)
    return Intervals(overlaps.start_ns, overlaps.end_ns)


def _covered_before(intervals: Intervals, times_ns: np.ndarray) -> np.ndarray:
    """The covered time before each of `times_ns`."""
    if not len(intervals):
        return np.zeros(len(times_ns), np.int64)
    last = np.searchsorted(intervals.start_ns, times_ns, "right") - 1  # the last that began; -1 before the first
    lengths_ns = intervals.lengths_ns
    total_ns = np.cumsum(lengths_ns, out=lengths_ns)  # in place, to save memory
    covered = total_ns[last] - np.maximum(intervals.end_ns[last] - times_ns, 0)
    return np.where(last >= 0, covered, 0)
