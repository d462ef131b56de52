"""Time without overlaps: intervals that share no moment, each owned by the interval that has priority there."""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from kernel_tables.intervals import Intervals, overlapping_pairs, union

NO_OWNER = -1


class Overlaps(NamedTuple):
    """The overlaps of some intervals with OwnedIntervals: one entry per pair that shares time."""

    interval_index: np.ndarray
    owner: np.ndarray
    time_ns: np.ndarray


class OwnedIntervals(NamedTuple):
    """Intervals in order of time that do not overlap, and the number of the owner of each."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    owner: np.ndarray

    @property
    def covered(self) -> Intervals:
        """The time in any of them."""
        return union(self.start_ns, self.end_ns)

    def owner_at(self, times_ns: np.ndarray) -> np.ndarray:
        """The owner of each of `times_ns`, NO_OWNER between the intervals."""
        index = np.searchsorted(self.start_ns, times_ns, "right") - 1
        is_inside = (index >= 0) & (times_ns < np.append(self.end_ns, 0)[index])
        return np.where(is_inside, np.append(self.owner, NO_OWNER)[index], NO_OWNER)

    def renumbered(self, new_owner: np.ndarray) -> "OwnedIntervals":
        """These intervals with a new number for each owner; intervals whose new owner is NO_OWNER are dropped."""
        owner = new_owner[self.owner]
        has_owner = owner != NO_OWNER
        return OwnedIntervals(self.start_ns[has_owner], self.end_ns[has_owner], owner[has_owner])

    def overlaps(self, start_ns: np.ndarray, end_ns: np.ndarray) -> Overlaps:
        """The overlaps with these intervals, which may be in any order."""
        index, own_index, starts_ns, ends_ns = overlapping_pairs(
            start_ns, end_ns, Intervals(self.start_ns, self.end_ns)
        )
        return Overlaps(index, self.owner[own_index], ends_ns - starts_ns)


def by_priority(start_ns: np.ndarray, end_ns: np.ndarray, priority: np.ndarray) -> OwnedIntervals:
    """At every moment the open interval with the lowest `priority`; owners are indices of intervals."""
    segments: list[tuple[int, int, int]] = []
    open_now: list[tuple[int, int, int]] = []  # a heap of (priority, end, index)
    now = int(start_ns.min(initial=0))

    def advance(time_ns: int) -> None:
        nonlocal now
        while open_now and now < time_ns:
            _, end, index = open_now[0]
            segment_end = min(end, time_ns)
            if segment_end > now:
                segments.append((now, segment_end, index))
                now = segment_end
            if end <= time_ns:
                heappop(open_now)
        now = max(now, time_ns)

    order = np.argsort(start_ns, kind="stable")
    columns = (order, priority[order], start_ns[order], end_ns[order])
    for index, own_priority, start, end in zip(*(column.tolist() for column in columns), strict=True):
        advance(start)
        heappush(open_now, (own_priority, end, index))
    advance(int(end_ns.max(initial=0)))
    return OwnedIntervals(*np.array(segments, np.int64).reshape(-1, 3).T)


def exclusive_time(start_ns: np.ndarray, end_ns: np.ndarray) -> OwnedIntervals:
    """The time of a thread's calls without the calls inside them: a thread is in the call that began last.

    Of calls that begin together, the shorter one is inside the longer. Owners are indices of calls.
    """
    priority = np.empty(len(start_ns), np.int64)
    priority[np.lexsort((-end_ns, start_ns))] = -np.arange(len(start_ns))
    return by_priority(start_ns, end_ns, priority)
