"""Which ranges of one thread are open at a time, or around another range. Pure numpy, integer nanoseconds.

A range is open at t when start <= t < end. Ranges are known by their number in opening order (see attribution.Ranges),
so a smaller number was opened earlier. A state stands for a set of open ranges; NONE is the empty set.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kernel_tables.attribution.keys import grouped

NONE = -1


class NestedThread:
    """A thread whose ranges nest: its state is the innermost open range, whose parents are the other open ones."""

    def __init__(
        self, thread_id: int, numbers: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, parent: np.ndarray
    ):
        """NUMBERS are this thread's ranges in ascending order; the rest is of all ranges, PARENT the range around."""
        self.thread_id, self.numbers = thread_id, numbers
        self._start_ns, self._end_ns, self._parent = start_ns, end_ns, parent
        self._times_ns, self._states = _innermost_over_time(
            numbers, start_ns[numbers], end_ns[numbers], parent[numbers]
        )

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost range open at each time."""
        return self._states[np.searchsorted(self._times_ns, times_ns, "right") - 1]

    def around(self, ranges: np.ndarray) -> np.ndarray:
        """The innermost range that encloses each of RANGES, which are another thread's, without being equal to it."""
        state = self.at(self._start_ns[ranges])
        rest = np.flatnonzero(state != NONE)
        while len(rest):
            inner, outer = ranges[rest], state[rest]
            rest = rest[~_encloses(self._start_ns, self._end_ns, outer, inner)]
            state[rest] = self._parent[state[rest]]
            rest = rest[state[rest] != NONE]
        return state

    def members(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in STATES, range) for every range open in each state, in no order."""
        positions, ranges = [], []
        position = np.flatnonzero(states != NONE)
        current = states[position]
        while len(position):
            positions.append(position)
            ranges.append(current)
            current = self._parent[current]
            position, current = position[current != NONE], current[current != NONE]
        return _joined(positions), _joined(ranges)


class InterleavedThread:
    """A thread whose ranges overlap without nesting (domains, start/end ranges).

    A state is the index of a stretch of time in which nothing opens or closes: it stands for the ranges open then.
    Behind the stretches come the states of `around`: the number of a range, plus the number of stretches.
    """

    def __init__(self, thread_id: int, numbers: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray):
        """NUMBERS are this thread's ranges in ascending order; the rest is of all ranges."""
        self.thread_id, self.numbers = thread_id, numbers
        self._start_ns, self._end_ns = start_ns, end_ns
        self._solid = numbers[end_ns[numbers] > start_ns[numbers]]
        starts, ends = start_ns[self._solid], np.sort(end_ns[self._solid])
        self._stretches = _sorted_distinct(np.concatenate([starts, ends]))  # the time at which each begins
        opened, closed = (np.searchsorted(times, self._stretches, "right") for times in (starts, ends))
        self._is_empty = np.append(opened == closed, True)  # the last entry serves times before the first stretch

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The state at each time."""
        stretch = np.searchsorted(self._stretches, times_ns, "right") - 1
        stretch[self._is_empty[stretch]] = NONE
        return stretch

    def around(self, ranges: np.ndarray) -> np.ndarray:
        """The state of the ranges that enclose each of RANGES, which are another thread's, and are not equal to it."""
        open_then = self.at(self._start_ns[ranges]) != NONE
        return np.where(open_then, len(self._stretches) + ranges, NONE)

    def members(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in STATES, range) for every range open in each state, in no order."""
        inner = states - len(self._stretches)
        position = np.flatnonzero(states != NONE)
        is_range = inner[position] >= 0
        at, around = position[~is_range], position[is_range]
        place, number = self._open_at(self._stretches[states[at]])
        outer_place, outer = self._open_at(self._start_ns[inner[around]])
        encloses = _encloses(self._start_ns, self._end_ns, outer, inner[around][outer_place])
        places = np.concatenate([at[place], around[outer_place[encloses]]])
        return places, np.concatenate([number, outer[encloses]])

    def opened_before(self, ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in RANGES, range) for every range open when each of RANGES, this thread's, was opened."""
        place, number = self._open_at(self._start_ns[ranges])
        earlier = number < ranges[place]
        return place[earlier], number[earlier]

    def _open_at(self, times_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in TIMES, range) for every range open at each time, in no order."""
        order = np.argsort(times_ns, kind="stable")
        sorted_ns = times_ns[order]
        first = np.searchsorted(sorted_ns, self._start_ns[self._solid])
        count = np.searchsorted(sorted_ns, self._end_ns[self._solid]) - first
        skipped = np.cumsum(count) - count - first
        return order[np.arange(count.sum()) - np.repeat(skipped, count)], np.repeat(self._solid, count)


def parents_if_nested(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray | None:
    """The index of the range around each, NONE for an outermost one; None where ranges overlap without nesting.

    The ranges come in opening order. A range of no duration is never open: it has a parent and is none.
    """
    solid = end_ns > start_ns
    closed_before = np.searchsorted(np.sort(end_ns[solid]), start_ns, "right")
    depth = np.cumsum(solid) - solid - closed_before
    parent = np.full(len(depth), NONE)
    levels = grouped(depth, int(depth.max(initial=0)) + 1)
    for above, here in pairwise(levels):
        above = above[solid[above]]
        parent[here] = above[np.searchsorted(above, here) - 1]
    inner = np.flatnonzero(parent != NONE)
    return parent if (end_ns[inner] <= end_ns[parent[inner]]).all() else None


def _innermost_over_time(
    numbers: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, parent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The times at which the innermost open range changes, and that range from each time on.

    One more NONE at the end of the ranges is for the index -1: what comes before the first time.
    """
    solid = end_ns > start_ns
    numbers, start_ns, end_ns, parent = numbers[solid], start_ns[solid], end_ns[solid], parent[solid]
    end_order = _end_order(end_ns)
    sorted_ends = end_ns[end_order]
    opening = np.arange(len(numbers)) + np.searchsorted(sorted_ends, start_ns, "right")
    closes = np.ones(2 * len(numbers), bool)
    closes[opening] = False
    times_ns, states = np.empty(len(closes), np.int64), np.full(len(closes) + 1, NONE)
    times_ns[opening], states[opening] = start_ns, numbers
    times_ns[closes], states[:-1][closes] = sorted_ends, parent[end_order]
    return times_ns, states


def _sorted_distinct(times_ns: np.ndarray) -> np.ndarray:
    """Each of the times once, ascending."""
    times_ns = np.sort(times_ns)
    return times_ns[np.append(True, times_ns[1:] != times_ns[:-1])[: len(times_ns)]]


def _end_order(end_ns: np.ndarray) -> np.ndarray:
    """The order of closing: by end, and of those that end together the inner (later opened) first."""
    return len(end_ns) - 1 - np.argsort(end_ns[::-1], kind="stable")


def _encloses(start_ns: np.ndarray, end_ns: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Whether each range OUTER encloses its INNER in time without being equal to it."""
    covers = (start_ns[outer] <= start_ns[inner]) & (end_ns[inner] <= end_ns[outer])
    return covers & ((start_ns[outer] != start_ns[inner]) | (end_ns[inner] != end_ns[outer]))


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
