"""Time told apart: pieces that share none, each of the interval that comes first at that moment."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from kernel_tables.intervals import Intervals, union

NOBODY = -1


@dataclass(frozen=True)
class Pieces:
    """Pieces of time, ascending and apart from each other, and what each belongs to, as a number from 0."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    owner: np.ndarray

    @property
    def covered(self) -> Intervals:
        """The time in any piece."""
        return union(self.start_ns, self.end_ns)

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The owner of each of TIMES, NOBODY between the pieces."""
        piece = np.searchsorted(self.start_ns, times_ns, "right") - 1
        is_in = (piece >= 0) & (times_ns < np.append(self.end_ns, 0)[piece])
        return np.where(is_in, np.append(self.owner, NOBODY)[piece], NOBODY)

    def of_owners(self, owner: np.ndarray) -> Pieces:
        """The same with another number for each owner; without the pieces of which that is NOBODY."""
        found = owner[self.owner]
        kept = found != NOBODY
        return Pieces(self.start_ns[kept], self.end_ns[kept], found[kept])

    def cut(self, start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(which interval, owner, time) of every piece that an interval reaches into; intervals in any order."""
        first = np.searchsorted(self.end_ns, start_ns, "right")
        count = np.maximum(np.searchsorted(self.start_ns, end_ns, "left") - first, 0)
        interval = np.repeat(np.arange(len(start_ns)), count)
        piece = np.arange(len(interval)) + np.repeat(first - np.cumsum(count) + count, count)
        shared = np.minimum(end_ns[interval], self.end_ns[piece]) - np.maximum(start_ns[interval], self.start_ns[piece])
        return interval, self.owner[piece], shared


def first_of_open(start_ns: np.ndarray, end_ns: np.ndarray, place: np.ndarray) -> Pieces:
    """At every moment the open interval with the lowest PLACE; the owners are positions of intervals."""
    pieces: list[tuple[int, int, int]] = []
    open_now: list[tuple[int, int, int]] = []  # (place, end, position), the first of them in front
    now = int(start_ns.min(initial=0))

    def advance(to: int) -> None:
        nonlocal now
        while open_now and now < to:
            _, end, position = open_now[0]
            until = min(end, to)
            if until > now:
                pieces.append((now, until, position))
                now = until
            if end <= to:
                heappop(open_now)
        now = max(now, to)

    order = np.argsort(start_ns, kind="stable")
    columns = (order, place[order], start_ns[order], end_ns[order])
    for position, own_place, start, end in zip(*(column.tolist() for column in columns), strict=True):
        advance(start)
        heappush(open_now, (own_place, end, position))
    advance(int(end_ns.max(initial=0)))
    found = np.array(pieces, np.int64).reshape(-1, 3)
    return Pieces(found[:, 0], found[:, 1], found[:, 2])


def own_time(start_ns: np.ndarray, end_ns: np.ndarray) -> Pieces:
    """The time of a thread's calls without what they call: at any moment the thread is in the call that began last. Of
    calls that begin together the shorter is inside the longer. The owners are positions of calls."""
    place = np.empty(len(start_ns), np.int64)
    place[np.lexsort((-end_ns, start_ns))] = -np.arange(len(start_ns))
    return first_of_open(start_ns, end_ns, place)
