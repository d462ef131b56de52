"""The time of a thread's calls without what they call: at any moment the thread is in the call that began last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.intervals import Intervals, union


@dataclass(frozen=True)
class OwnTime:
    """Pieces of time, ascending and apart from each other, and the call that each belongs to."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    call: np.ndarray  # position among the calls

    def of(self, calls: np.ndarray) -> Intervals:
        """The own time of the calls for which the mask CALLS is true."""
        mine = calls[self.call]
        return union(self.start_ns[mine], self.end_ns[mine])

    @property
    def covered(self) -> Intervals:
        """The time in any call."""
        return union(self.start_ns, self.end_ns)

    def holds(self, times_ns: np.ndarray) -> np.ndarray:
        """Whether the thread is in any call at each of TIMES."""
        piece = np.searchsorted(self.start_ns, times_ns, "right") - 1
        return (piece >= 0) & (times_ns < np.append(self.end_ns, 0)[piece])


def own_time(start_ns: np.ndarray, end_ns: np.ndarray) -> OwnTime:
    """The own time of calls of one thread. Of calls that begin together the shorter is inside the longer."""
    pieces: list[tuple[int, int, int]] = []
    open_calls: list[tuple[int, int]] = []  # (end, call), the innermost last
    now = int(start_ns.min(initial=0))

    def advance(to: int) -> None:
        nonlocal now
        while open_calls and now < to:
            end, call = open_calls[-1]
            until = min(end, to)
            if until > now:
                pieces.append((now, until, call))
                now = until
            if end <= to:
                open_calls.pop()
        now = max(now, to)

    order = np.lexsort((-end_ns, start_ns))
    for call, start, end in zip(order.tolist(), start_ns[order].tolist(), end_ns[order].tolist(), strict=True):
        advance(start)
        open_calls.append((end, call))
    advance(int(end_ns.max(initial=0)))
    found = np.array(pieces, np.int64).reshape(-1, 3)
    return OwnTime(found[:, 0], found[:, 1], found[:, 2])
