"""The calls of modules in a trace with stacks (`with_stack=True`), as ranges.

Such a trace has an event for each call of a module, `nn.Module: Block_3`: its class and its number among modules of the
class, but not its name in the model. So all blocks of a model have the same name. `Nesting` finds which event of a
thread is inside which.
"""

import re
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernel_tables.kineto.trace import FUNCTION, MODULE, NONE, Columns, TorchTrace

NOT_OF_CLASS = re.compile(r"_\d+$|^FSDP(?=[A-Z])")  # fully_shard renames the class Block to FSDPBlock
# Wrappers around a module that are not part of its model.
WRAPPERS = {
    "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule", "CheckpointWrapper",
}  # fmt: skip


class Range(NamedTuple):
    """A range of a capture."""

    start_ns: int
    end_ns: int
    thread: int  # global id
    name: str


def rows_by_thread(thread: np.ndarray, mask: np.ndarray | None = None) -> dict[int, np.ndarray]:
    """The rows of the events of each thread, only those in `mask` if it is given."""
    rows = np.arange(len(thread)) if mask is None else np.flatnonzero(mask)
    order = rows[np.argsort(thread[rows], kind="stable")]
    ids, first = np.unique(thread[order], return_index=True)
    return dict(zip(ids.tolist(), np.split(order, first[1:]), strict=False))  # np.split returns one part for no events


def outermost(events: Columns, rows: np.ndarray) -> np.ndarray:
    """The `rows` of events of one thread that lie in no other one of these, by start. Of two events with equal times,
    the one with the lower `order` is the outer one."""
    rows = rows[np.lexsort((events["order"][rows], -events["end"][rows], events["start"][rows]))]
    covered_ns = np.maximum.accumulate(events["end"][rows])
    is_outermost = np.append(True, events["start"][rows[1:]] >= covered_ns[:-1])
    return rows[is_outermost[: len(rows)]]  # cut, since it has one entry even without rows


class Nesting:
    """How the events of a thread are nested. Events without a duration are never open; an event that ends after its
    outer event is cut there, not into segments as in attribution/nesting.py.

    `order`: the events in the order in which they began. `parent`: the event around each one, NONE without one.
    `innermost`: the innermost open event from each of `times_ns` to the next, NONE if none is open; its last element
    is for times before the first.
    """

    def __init__(self, start_ns: np.ndarray, end_ns: np.ndarray) -> None:
        times_ns: list[int] = []
        innermost: list[int] = []
        self.parent = np.full(len(start_ns), NONE)
        cut_ends_ns, open_events = end_ns.tolist(), []

        def close(until_ns: float) -> None:
            while open_events and cut_ends_ns[open_events[-1]] <= until_ns:
                times_ns.append(cut_ends_ns[open_events.pop()])
                innermost.append(open_events[-1] if open_events else NONE)

        self.order = np.lexsort((-end_ns, start_ns)).tolist()
        for event in self.order:
            begin_ns = int(start_ns[event])
            close(begin_ns)
            self.parent[event] = open_events[-1] if open_events else NONE
            if cut_ends_ns[event] > begin_ns:
                if open_events:
                    cut_ends_ns[event] = min(cut_ends_ns[event], cut_ends_ns[open_events[-1]])
                open_events.append(event)
                times_ns.append(begin_ns)
                innermost.append(event)
        close(float("inf"))
        self.times_ns, self.innermost = np.array(times_ns, np.int64), np.array([*innermost, NONE], np.int64)

    def innermost_at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost open event at each time, NONE if no event is open."""
        return self.innermost[np.searchsorted(self.times_ns, times_ns, "right") - 1]


class ModuleCalls:
    """The calls of modules, without wrappers, by number."""

    def __init__(self, trace: TorchTrace) -> None:
        functions, names = trace[FUNCTION], trace.names.values
        class_names = {  # by number of the event's name
            number: NOT_OF_CLASS.sub("", names[number].removeprefix(MODULE))
            for number in np.unique(functions["name"]).tolist()
            if names[number].startswith(MODULE)
        }
        kept_numbers = [number for number, name in class_names.items() if name not in WRAPPERS]
        is_call = np.isin(functions["name"], kept_numbers)
        self.start, self.end, self.thread = (functions[name][is_call] for name in ("start", "end", "thread"))
        self.names = [class_names[number] for number in functions["name"][is_call].tolist()]
        self._threads = rows_by_thread(self.thread)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _nesting(self) -> dict[int, Nesting]:
        return {thread: Nesting(self.start[rows], self.end[rows]) for thread, rows in self._threads.items()}

    @cached_property
    def parent(self) -> np.ndarray:
        """The call around each call on its thread, NONE for an outermost one."""
        parent = np.full(len(self), NONE)
        for thread, rows in self._threads.items():
            inner = self._nesting[thread].parent
            parent[rows] = np.where(inner == NONE, NONE, rows[inner])
        return parent

    @cached_property
    def chains(self) -> list[tuple[int, ...]]:
        """For each call, the calls around it and itself, outermost first; without calls of the same class as the one
        directly around them."""
        chains: list[tuple[int, ...]] = [()] * len(self)
        for call in np.lexsort((-self.end, self.start)).tolist():
            chain_around = chains[self.parent[call]] if self.parent[call] != NONE else ()
            is_repeated = bool(chain_around) and self.names[chain_around[-1]] == self.names[call]
            chains[call] = chain_around if is_repeated else (*chain_around, call)
        return chains

    @property
    def ranges(self) -> list[Range]:
        """The ranges of the calls, without calls of the same class as the one directly around them."""
        return [self.range_of(call) for call, chain in enumerate(self.chains) if chain and chain[-1] == call]

    def range_of(self, call: int, name: str | None = None) -> Range:
        """The range of a call, with the name of its class or another one."""
        return Range(int(self.start[call]), int(self.end[call]), int(self.thread[call]), name or self.names[call])

    def innermost_at(self, thread: int, times_ns: np.ndarray) -> np.ndarray:
        """The innermost open call on the thread at each time, NONE if no call is open."""
        if thread not in self._threads:
            return np.full(len(times_ns), NONE)
        inner = self._nesting[thread].innermost_at(times_ns)
        return np.where(inner == NONE, NONE, self._threads[thread][inner])
