"""Which ranges of one thread are open at a time, or around another range. Pure numpy, integer nanoseconds.

A range is open at t when start <= t < end. Ranges are known by their number in opening order (see attribution.Ranges),
so a smaller number was opened earlier. A state stands for a set of open ranges; NONE is the empty set.
"""

from __future__ import annotations

from bisect import insort
from itertools import pairwise

import numpy as np

NONE = -1


class NestedThread:
    """A thread whose ranges nest: its state is the innermost open range, whose parents are the other open ones."""

    def __init__(self, process: int, numbers: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, parent: np.ndarray):
        """NUMBERS are this thread's ranges in ascending order; the rest is of all ranges, PARENT the range around."""
        self.process, self.numbers = process, numbers
        self._start_ns, self._end_ns, self._parent = start_ns, end_ns, parent
        self._times_ns, self._states = _innermost_over_time(
            numbers, start_ns[numbers], end_ns[numbers], parent[numbers]
        )

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost range open at each time."""
        return np.append(self._states, NONE)[np.searchsorted(self._times_ns, times_ns, "right") - 1]

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
    """A thread whose ranges overlap without nesting (domains, start/end ranges): a sweep, one event at a time."""

    def __init__(self, process: int, numbers: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray):
        self.process, self.numbers = process, numbers
        self._start_ns, self._end_ns = start_ns, end_ns
        self._sets: list[tuple[int, ...]] = []
        self._state_of: dict[tuple[int, ...], int] = {(): NONE}

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The state at each time."""
        distinct, inverse = np.unique(times_ns, return_inverse=True)
        return self._swept(distinct)[inverse.reshape(-1)]

    def around(self, ranges: np.ndarray) -> np.ndarray:
        """The state of the ranges that enclose each of RANGES, which are another thread's, and are not equal to it."""
        states = self.at(self._start_ns[ranges])
        for position in np.flatnonzero(states != NONE):
            members = np.array(self._sets[states[position]])
            inner = np.full(len(members), ranges[position])
            kept = members[_encloses(self._start_ns, self._end_ns, members, inner)]
            states[position] = self._state(tuple(kept.tolist()))
        return states

    def opened_before(self, ranges: np.ndarray) -> np.ndarray:
        """The state of those ranges that were open when each of RANGES, which are this thread's, was opened."""
        states = self.at(self._start_ns[ranges])
        for position, number in enumerate(ranges.tolist()):
            if states[position] != NONE:
                members = self._sets[states[position]]
                states[position] = self._state(tuple(member for member in members if member < number))
        return states

    def members(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in STATES, range) for every range open in each state."""
        sets = [self._sets[state] if state != NONE else () for state in states.tolist()]
        positions = np.repeat(np.arange(len(sets)), [len(members) for members in sets])
        return positions, np.array([number for members in sets for number in members], np.int64)

    def _swept(self, times_ns: np.ndarray) -> np.ndarray:
        """The state at each of TIMES, which ascend."""
        events = _events(self.numbers, self._start_ns[self.numbers], self._end_ns[self.numbers])
        states, is_open, next_event, state = [], [], 0, NONE
        event_times, opens, numbers = (column.tolist() for column in events)
        for time_ns in times_ns.tolist():
            event_before = next_event
            while next_event < len(event_times) and event_times[next_event] <= time_ns:
                number = numbers[next_event]
                insort(is_open, number) if opens[next_event] else is_open.remove(number)
                next_event += 1
            if next_event != event_before:
                state = self._state(tuple(is_open))
            states.append(state)
        return np.array(states, np.int64)

    def _state(self, members: tuple[int, ...]) -> int:
        if members not in self._state_of:
            self._state_of[members] = len(self._sets)
            self._sets.append(members)
        return self._state_of[members]


def parents_if_nested(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray | None:
    """The index of the range around each, NONE for an outermost one; None where ranges overlap without nesting.

    The ranges come in opening order. A range of no duration is never open: it has a parent and is none.
    """
    solid = end_ns > start_ns
    closed_before = np.searchsorted(np.sort(end_ns[solid]), start_ns, "right")
    depth = np.cumsum(solid) - solid - closed_before
    parent = np.full(len(depth), NONE)
    levels = by_level(depth)
    for above, here in pairwise(levels):
        above = above[solid[above]]
        parent[here] = above[np.searchsorted(above, here) - 1]
    inner = np.flatnonzero(parent != NONE)
    return parent if (end_ns[inner] <= end_ns[parent[inner]]).all() else None


def by_level(depth: np.ndarray) -> list[np.ndarray]:
    """The indices of each depth from 0 on, ascending."""
    deepest = int(depth.max(initial=0))
    order = np.argsort(depth.astype(np.min_scalar_type(deepest)), kind="stable")  # small integers are sorted by radix
    return np.split(order, np.cumsum(np.bincount(depth, minlength=1))[:-1])


def _innermost_over_time(
    numbers: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, parent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The times at which the innermost open range changes, and that range from each time on; NONE stands last."""
    solid = end_ns > start_ns
    numbers, start_ns, end_ns, parent = numbers[solid], start_ns[solid], end_ns[solid], parent[solid]
    end_order = _end_order(end_ns)
    sorted_ends = end_ns[end_order]
    opening = np.arange(len(numbers)) + np.searchsorted(sorted_ends, start_ns, "right")
    closes = np.ones(2 * len(numbers), bool)
    closes[opening] = False
    times_ns, states = np.empty(len(closes), np.int64), np.empty(len(closes), np.int64)
    times_ns[opening], states[opening] = start_ns, numbers
    times_ns[closes], states[closes] = sorted_ends, parent[end_order]
    return times_ns, states


def _events(numbers: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(time, whether it opens, range) of every opening and closing in order; at one time the closings come first."""
    solid = end_ns > start_ns
    numbers, start_ns, end_ns = numbers[solid], start_ns[solid], end_ns[solid]
    times_ns = np.concatenate([end_ns, start_ns])
    opens = np.repeat([False, True], len(numbers))
    order = np.argsort(times_ns, kind="stable")
    return times_ns[order], opens[order], np.concatenate([numbers, numbers])[order]


def _end_order(end_ns: np.ndarray) -> np.ndarray:
    """The order of closing: by end, and of those that end together the inner (later opened) first."""
    return len(end_ns) - 1 - np.argsort(end_ns[::-1], kind="stable")


def _encloses(start_ns: np.ndarray, end_ns: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Whether each range OUTER encloses its INNER in time without being equal to it."""
    covers = (start_ns[outer] <= start_ns[inner]) & (end_ns[inner] <= end_ns[outer])
    return covers & ((start_ns[outer] != start_ns[inner]) | (end_ns[inner] != end_ns[outer]))


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)
