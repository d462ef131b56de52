"""Modules of a model without ranges of the program: from the stacks of a trace (`with_stack=True`).

Such a trace has an event for each call of a module, `nn.Module: Block_3`: its class and its number among those of the
class. The names of attributes are not there. Only the class names a layer, so all blocks of a model have one name.
`Nest` tells which event of a thread is inside which.
"""

import re
from functools import cached_property

import numpy as np

from kernel_tables.kineto.trace import FUNCTION, MODULE, NONE, TorchTrace


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


INSTANCE = re.compile(r"_\d+$|^FSDP(?=[A-Z])")  # fully_shard makes FSDPBlock of a Block
# Wrappers around a module that are not part of its model.
WRAPPERS = {
    "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule", "CheckpointWrapper",
}  # fmt: skip


class ModuleCalls:
    """The calls of modules, without wrappers and without calls that have the name of the outer module."""

    def __init__(self, trace: TorchTrace) -> None:
        functions, names = trace[FUNCTION], trace.names.values
        class_of = {
            number: INSTANCE.sub("", names[number].removeprefix(MODULE))
            for number in np.unique(functions["name"]).tolist()
            if names[number].startswith(MODULE)
        }
        wanted = [number for number, name in class_of.items() if name not in WRAPPERS]
        is_wanted = np.isin(functions["name"], wanted)
        self.start, self.end, self.thread = (functions[name][is_wanted] for name in ("start", "end", "thread"))
        self.names = [class_of[number] for number in functions["name"][is_wanted].tolist()]
        self._threads = by_thread(self.thread)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _nests(self) -> dict[int, Nest]:
        return {thread: Nest(self.start[rows], self.end[rows]) for thread, rows in self._threads.items()}

    @cached_property
    def parent(self) -> np.ndarray:
        """The call around each on its thread, NONE for an outermost one."""
        parent = np.full(len(self), NONE)
        for thread, rows in self._threads.items():
            inner = self._nests[thread].parent
            parent[rows] = np.where(inner == NONE, NONE, rows[inner])
        return parent

    @cached_property
    def chains(self) -> list[tuple[int, ...]]:
        """For each call, the calls around it and itself, outermost first, without those that repeat a name."""
        chains: list[tuple[int, ...]] = [()] * len(self)
        for call in np.lexsort((-self.end, self.start)).tolist():
            around = chains[self.parent[call]] if self.parent[call] != NONE else ()
            repeats = bool(around) and self.names[around[-1]] == self.names[call]
            chains[call] = around if repeats else (*around, call)
        return chains

    @property
    def ranges(self) -> list[int]:
        """The calls that are ranges."""
        return [call for call, chain in enumerate(self.chains) if chain and chain[-1] == call]

    def innermost_at(self, thread: int, times_ns: np.ndarray) -> np.ndarray:
        """The innermost open call on the thread at each time, NONE if no call is open."""
        if thread not in self._threads:
            return np.full(len(times_ns), NONE)
        inner = self._nests[thread].innermost_at(times_ns)
        return np.where(inner == NONE, NONE, self._threads[thread][inner])
