"""How the events of a thread nest."""

import numpy as np

from kernel_tables.kineto.trace import NONE


def by_thread(thread: np.ndarray, mask: np.ndarray | None = None) -> dict[int, np.ndarray]:
    """The positions of each thread's events (only those in `mask`, if given)."""
    rows = np.arange(len(thread)) if mask is None else np.flatnonzero(mask)
    order = rows[np.argsort(thread[rows], kind="stable")]
    ids, first = np.unique(thread[order], return_index=True)
    return dict(zip(ids.tolist(), np.split(order, first[1:]), strict=False))  # np.split returns one part for no events


def outermost(start_ns: np.ndarray, end_ns: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The positions of the events of one thread that are in no other event, by start; of two events with equal times,
    the one with the lower `order`."""
    rows = np.lexsort((order, -end_ns, start_ns))
    covered_ns = np.maximum.accumulate(end_ns[rows])
    return rows[np.append(True, start_ns[rows[1:]] >= covered_ns[:-1])[: len(rows)]]


class Nest:
    """The innermost event of a thread over time, and the event around each event. Events without a duration are never
    open; an event that ends after its outer event is cut there."""

    def __init__(self, start_ns: np.ndarray, end_ns: np.ndarray) -> None:
        times: list[int] = []
        innermost: list[int] = []
        self.parent = np.full(len(start_ns), NONE)
        ends, stack = end_ns.tolist(), []

        def close(until_ns: float) -> None:
            while stack and ends[stack[-1]] <= until_ns:
                times.append(ends[stack.pop()])
                innermost.append(stack[-1] if stack else NONE)

        self.order = np.lexsort((-end_ns, start_ns)).tolist()  # of opening
        for event in self.order:
            begin = int(start_ns[event])
            close(begin)
            self.parent[event] = stack[-1] if stack else NONE
            if ends[event] > begin:
                if stack:
                    ends[event] = min(ends[event], ends[stack[-1]])
                stack.append(event)
                times.append(begin)
                innermost.append(event)
        close(float("inf"))
        self.times_ns, self.innermost = np.array(times, np.int64), np.array([*innermost, NONE], np.int64)

    def innermost_at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost open event at each time, NONE if no event is open."""
        return self.innermost[np.searchsorted(self.times_ns, times_ns, "right") - 1]
