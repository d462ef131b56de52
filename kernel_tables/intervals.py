"""Half-open intervals of integer nanoseconds: their unions, intersections, gaps, and the time that they cover."""

from dataclasses import dataclass

import numpy as np


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
        return int(self.lengths_ns.sum())


def union(start_ns: np.ndarray, end_ns: np.ndarray) -> Intervals:
    """The time covered by at least one of the intervals, which may be in any order and empty."""
    rows = np.flatnonzero(end_ns > start_ns)
    rows = rows[np.argsort(start_ns[rows], kind="stable")]
    start_ns, reached_ns = start_ns[rows], np.maximum.accumulate(end_ns[rows])
    begins = np.append(True, start_ns[1:] > reached_ns[:-1])[: len(rows)]
    ends = np.append(begins[1:], True)[: len(rows)]
    return Intervals(start_ns[begins], reached_ns[ends])


def unions(start_ns: np.ndarray, end_ns: np.ndarray, group: np.ndarray) -> tuple[Intervals, np.ndarray]:
    """The union of each group of intervals, one after the other, and the group of each interval in the result. `group`
    is the number of the group of each interval, from 0."""
    times, place = np.unique(np.concatenate([start_ns, end_ns]), return_inverse=True)
    # The places of times of a later group are later, so that the groups do not touch each other.
    found = union(*(place.reshape(2, -1) + group.astype(np.int64) * len(times)))
    (of_group, start), end = np.divmod(found.start_ns, max(len(times), 1)), found.end_ns % max(len(times), 1)
    return Intervals(times[start], times[end]), of_group


def intersection(*operands: Intervals) -> Intervals:
    """The time that all of `operands` cover."""
    common = operands[0]
    for other in operands[1:]:
        common = Intervals(*overlapping_pairs(common.start_ns, common.end_ns, other)[2:])
    return common


def gaps(covered: Intervals, first_ns: int, last_ns: int, least_ns: int = 1) -> Intervals:
    """The time from `first_ns` to `last_ns` that is not covered, in stretches of at least `least_ns`."""
    start_ns = np.clip(np.append(first_ns, covered.end_ns), first_ns, last_ns)
    end_ns = np.clip(np.append(covered.start_ns, last_ns), first_ns, last_ns)
    is_long = end_ns - start_ns >= least_ns
    return Intervals(start_ns[is_long], end_ns[is_long])


def difference(covered: Intervals, *others: Intervals) -> Intervals:
    """The covered time that none of `others` covers."""
    if not len(covered):
        return covered
    first_ns, last_ns = int(covered.start_ns[0]), int(covered.end_ns[-1])
    return intersection(covered, *(gaps(other, first_ns, last_ns) for other in others))


def covered_ns(intervals: Intervals, start_ns: np.ndarray | int, end_ns: np.ndarray | int) -> np.ndarray:
    """The covered time of each [start, end); these may be in any order and overlap."""
    before = np.append(0, np.cumsum(intervals.lengths_ns))  # the covered time before each interval, and in all

    def covered_until(times_ns: np.ndarray | int) -> np.ndarray:
        begun = np.searchsorted(intervals.start_ns, times_ns, "right")  # how many intervals began until then
        return before[begun] - np.where(begun > 0, np.maximum(ends_ns[begun] - times_ns, 0), 0)

    ends_ns = np.append(0, intervals.end_ns)
    return np.maximum(covered_until(end_ns) - covered_until(start_ns), 0)


def overlapping_pairs(start_ns: np.ndarray, end_ns: np.ndarray, others: Intervals) -> tuple[np.ndarray, ...]:
    """The pairs of one of the intervals [start, end), which may be in any order, and one of `others` that overlap: the
    index of the one, the index of the other, and the start and the end of the overlap."""
    first = np.searchsorted(others.end_ns, start_ns, "right")
    count = np.maximum(np.searchsorted(others.start_ns, end_ns, "left") - first, 0)
    index = np.repeat(np.arange(len(start_ns)), count)
    # Of each interval: first, first + 1, ..., first + count - 1.
    other = np.arange(len(index)) + np.repeat(first - np.cumsum(count) + count, count)
    starts_ns = np.maximum(start_ns[index], others.start_ns[other])
    return index, other, starts_ns, np.minimum(end_ns[index], others.end_ns[other])
