"""Which ranges are open on a thread whose ranges nest: the innermost one over time, and the range around each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernel_tables.attribution.keys import grouped
from kernel_tables.attribution.ranges import NONE, Ranges


@dataclass(frozen=True)
class Nesting:
    """How the ranges of one thread nest; they are known by their index among the thread's own."""

    parent: np.ndarray  # the range around each, NONE for an outermost one
    times_ns: np.ndarray  # when the innermost open range changes, ascending
    innermost: np.ndarray  # that range from each time on; one NONE more, for index -1: before the first time


class NestedThread:
    """A thread whose ranges nest. Its state is the innermost open range, whose parents are the other open ones."""

    def __init__(self, thread_id: int, numbers: np.ndarray, ranges: Ranges, nesting: Nesting, parent: np.ndarray):
        """NUMBERS are this thread's ranges, ascending; PARENT the number of the range around each range of RANGES."""
        self.thread_id, self.numbers = thread_id, numbers
        self._ranges, self._parent = ranges, parent
        self._times_ns, self._states = nesting.times_ns, np.append(numbers, NONE)[nesting.innermost]

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost range open at each time, NONE where none is."""
        return self._states[np.searchsorted(self._times_ns, times_ns, "right") - 1]

    def around(self, ranges: np.ndarray) -> np.ndarray:
        """The innermost range that encloses each of RANGES, which are another thread's; NONE where none does."""
        state = self.at(self._ranges.start_ns[ranges])
        rest = np.flatnonzero(state != NONE)
        while len(rest):
            rest = rest[~self._ranges.encloses(state[rest], ranges[rest])]
            state[rest] = self._parent[state[rest]]
            rest = rest[state[rest] != NONE]
        return state

    def members(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in STATES, range) for every range open in each state, in no order."""
        positions, ranges = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        position = np.flatnonzero(states != NONE)
        current = states[position]
        while len(position):
            positions.append(position)
            ranges.append(current)
            current = self._parent[current]
            position, current = position[current != NONE], current[current != NONE]
        return np.concatenate(positions), np.concatenate(ranges)


def nesting(start_ns: np.ndarray, end_ns: np.ndarray) -> Nesting | None:
    """How these ranges nest, which come in opening order; None where some overlap without nesting.

    A range of no duration is never open: it has a parent and is none.
    """
    solid = end_ns > start_ns
    closing = _in_order_of_closing(np.flatnonzero(solid), end_ns)
    ends_ns = end_ns[closing]
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


def _in_order_of_closing(ranges: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """The ranges by end, and of those that end together the inner (later opened) first."""
    return ranges[::-1][np.argsort(end_ns[ranges][::-1], kind="stable")]


def _parents(solid: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """The range around each: the one of some duration that was opened last on the level above."""
    parent = np.full(len(depth), NONE)
    for above, here in pairwise(grouped(depth, int(depth.max(initial=0)) + 1)):
        above = above[solid[above]]
        parent[here] = above[np.searchsorted(above, here) - 1]
    return parent
