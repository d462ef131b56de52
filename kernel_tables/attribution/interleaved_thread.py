"""Which ranges are open on a thread whose ranges overlap without nesting: domains side by side, start/end ranges."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.ranges import NONE, Ranges


class InterleavedThread:
    """A thread whose ranges overlap without nesting.

    A state is the index of a stretch of time in which nothing opens or closes: it stands for the ranges open then.
    Behind the stretches come the states of `around`: the number of a range, plus the number of stretches.
    """

    def __init__(self, thread_id: int, numbers: np.ndarray, ranges: Ranges):
        """NUMBERS are this thread's ranges among all RANGES, ascending."""
        self.thread_id, self.numbers = thread_id, numbers
        self._ranges = ranges
        self._solid = numbers[ranges.end_ns[numbers] > ranges.start_ns[numbers]]
        self._starts_ns, self._ends_ns = ranges.start_ns[self._solid], ranges.end_ns[self._solid]
        sorted_ends_ns = np.sort(self._ends_ns)
        self._stretches_ns = _sorted_distinct(np.concatenate([self._starts_ns, self._ends_ns]))  # where each begins
        opened = np.searchsorted(self._starts_ns, self._stretches_ns, "right")
        closed = np.searchsorted(sorted_ends_ns, self._stretches_ns, "right")
        self._is_empty = np.append(opened == closed, True)  # one more for index -1: before the first stretch

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The state at each time, NONE where no range is open."""
        stretch = np.searchsorted(self._stretches_ns, times_ns, "right") - 1
        stretch[self._is_empty[stretch]] = NONE
        return stretch

    def around(self, ranges: np.ndarray) -> np.ndarray:
        """The state of the ranges that enclose each of RANGES, which are another thread's; NONE where none can."""
        possible = self.at(self._ranges.start_ns[ranges]) != NONE
        return np.where(possible, len(self._stretches_ns) + ranges, NONE)

    def members(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in STATES, range) for every range of each state, in no order."""
        inner = states - len(self._stretches_ns)
        at, around = np.flatnonzero((states != NONE) & (inner < 0)), np.flatnonzero(inner >= 0)
        place, number = self._open_at(self._stretches_ns[states[at]])
        outer_place, outer = self._open_at(self._ranges.start_ns[inner[around]])
        encloses = self._ranges.encloses(outer, inner[around[outer_place]])
        return (
            np.concatenate([at[place], around[outer_place[encloses]]]),
            np.concatenate([number, outer[encloses]]),
        )

    def opened_before(self, ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in RANGES, range) for every range open when each of RANGES, this thread's own, was opened."""
        place, number = self._open_at(self._ranges.start_ns[ranges])
        earlier = number < ranges[place]
        return place[earlier], number[earlier]

    def _open_at(self, times_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in TIMES, range) for every range open at each time, in no order.

        Of the sorted times, a range is open at those from its start up to its end.
        """
        order = np.argsort(times_ns, kind="stable")
        sorted_ns = times_ns[order]
        first = np.searchsorted(sorted_ns, self._starts_ns)
        count = np.searchsorted(sorted_ns, self._ends_ns) - first
        skipped = np.cumsum(count) - count - first
        return order[np.arange(count.sum()) - np.repeat(skipped, count)], np.repeat(self._solid, count)


def _sorted_distinct(times_ns: np.ndarray) -> np.ndarray:
    """Each of the times once, ascending."""
    times_ns = np.sort(times_ns)
    is_new = np.ones(len(times_ns), bool)
    is_new[1:] = times_ns[1:] != times_ns[:-1]
    return times_ns[is_new]
