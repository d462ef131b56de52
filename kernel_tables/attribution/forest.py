"""Which ranges each launch belongs to. Pure numpy, integer nanoseconds; no table, no SQL.

The rule: a launch belongs to the ranges open at its time on its own thread, and inherits those of other threads of its
process that enclose its thread's outermost open range, or that are open at the launch where its thread has none.
Inherited ranges come first, ordered by (start, longest first, thread, row), then its own in opening order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.keys import compact
from kernel_tables.attribution.threads import NONE, InterleavedThread, NestedThread, by_level, parents_if_nested

Thread = NestedThread | InterleavedThread
Members = tuple[np.ndarray, np.ndarray]  # (place, number of a range), one entry per range of each place


@dataclass(frozen=True)
class Ranges:
    """All range instances in opening order: by start, longest first, thread, row. A range's index is its number."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    thread: np.ndarray
    process: np.ndarray
    name: np.ndarray  # code of the name
    row: np.ndarray  # where it stood in the table

    def __len__(self) -> int:
        return len(self.start_ns)


def in_opening_order(start_ns, end_ns, thread, process, name) -> Ranges:
    """The ranges, sorted; an end before its start is taken for the start."""
    end_ns = np.maximum(start_ns, end_ns)
    order = np.lexsort((thread, -end_ns, start_ns))
    return Ranges(start_ns[order], end_ns[order], thread[order], process[order], name[order], order)


@dataclass(frozen=True)
class Attribution:
    """Every chain of open ranges that occurs, as a forest, and the chain of each launch.

    A node is a range with the chain of ranges around it; its parent is the node of that chain without the range.
    The first len(ranges) nodes are the ranges themselves, as they were opened.
    """

    parent: np.ndarray  # node -> node, or NONE
    range: np.ndarray  # node -> number of its innermost range
    launch_node: np.ndarray  # launch -> node, or NONE where no range is open

    def levels(self) -> list[np.ndarray]:
        """The nodes by their depth: every parent stands in the level before its children."""
        return by_level(self.totals((self.parent != NONE).astype(np.int64)))

    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of VALUES (one per node) over each node and the nodes around it."""
        totals, above = values.copy(), self.parent.copy()
        inside = np.flatnonzero(above != NONE)
        while len(inside):  # each round doubles the reach, so there are as many as the depth has bits
            reached = above[inside]
            totals[inside] += totals[reached]
            above[inside] = above[reached]
            inside = inside[above[inside] != NONE]
        return totals


def attribute(
    ranges: Ranges, launch_ns: np.ndarray, launch_thread: np.ndarray, launch_process: np.ndarray
) -> Attribution:
    """The chain of ranges of every launch, given the start of its API call and its global thread and process."""
    threads, parent = _threads(ranges)
    forest = _Forest(ranges, parent)
    for thread in threads.values():
        forest.set_inherited(thread, _others(threads, thread))
    launch_node = np.full(len(launch_ns), NONE)
    for thread_id, process in _pairs(launch_thread, launch_process):
        here = np.flatnonzero(launch_thread == thread_id)
        own = threads.get(thread_id)
        others = [t for key, t in threads.items() if key != thread_id and t.process == process]
        launch_node[here] = forest.launch_nodes(launch_ns[here], own, others)
    return forest.attribution(launch_node)


class _Forest:
    """Grows the forest of an Attribution."""

    def __init__(self, ranges: Ranges, parent: np.ndarray):
        self._ranges = ranges
        self._within = parent  # range -> range around it on its own thread
        self._parent = parent.copy()  # range -> node around it, inherited ones included
        self._more_parents: list[np.ndarray] = []
        self._more_ranges: list[np.ndarray] = []
        self._count = len(ranges)

    def attribution(self, launch_node: np.ndarray) -> Attribution:
        parent = np.concatenate([self._parent, *self._more_parents])
        innermost = np.concatenate([np.arange(len(self._ranges)), *self._more_ranges])
        return Attribution(parent, innermost, launch_node)

    def set_inherited(self, thread: Thread, others: list[Thread]) -> None:
        """Puts what other threads have around it below each range of THREAD."""
        if isinstance(thread, NestedThread):
            roots = thread.numbers[self._within[thread.numbers] == NONE]
            self._parent[roots] = self._inherited([(other, other.around(roots)) for other in others], len(roots))
        else:
            before = thread.opened_before(thread.numbers)
            self._parent[thread.numbers] = self._mixed(thread, before, others, outermost=thread.numbers)

    def launch_nodes(self, times_ns: np.ndarray, own: Thread | None, others: list[Thread]) -> np.ndarray:
        """The node of each launch on a thread with the ranges OWN."""
        nodes = own.at(times_ns) if own else np.full(len(times_ns), NONE)
        bare = np.flatnonzero(nodes == NONE)
        if isinstance(own, InterleavedThread):
            states, inverse = compact(nodes)
            nodes = self._mixed(own, states, others, outermost=None)[inverse]
        nodes[bare] = self._inherited([(other, other.at(times_ns[bare])) for other in others], len(bare))
        return nodes

    def _inherited(self, offers: list[tuple[Thread, np.ndarray]], count: int) -> np.ndarray:
        """The node of what other threads offer to each of COUNT places; an offer is a thread and its states."""
        offers = [(thread, states) for thread, states in offers if (states != NONE).any()]
        if not offers:
            return np.full(count, NONE)
        if len(offers) == 1 and isinstance(offers[0][0], NestedThread):
            return offers[0][1]  # what lies around the outermost range there would have been offered too
        key = np.zeros(count, np.int64)
        for _, states in offers:
            distinct, inverse = compact(states)
            key = compact(key * len(distinct) + inverse)[1]
        example = np.zeros(key.max() + 1, np.int64)
        example[key] = np.arange(count)
        members = [thread.members(states[example]) for thread, states in offers]
        return self._chains(len(example), members)[key]

    def _mixed(
        self, thread: InterleavedThread, states: np.ndarray, others: list[Thread], outermost: np.ndarray | None
    ) -> np.ndarray:
        """The node of each state of an interleaved THREAD; OUTERMOST is the outermost range where a state is empty."""
        place, number = thread.members(states)
        first = np.full(len(states), len(self._ranges)) if outermost is None else outermost.copy()
        np.minimum.at(first, place, number)
        asked = np.flatnonzero(first < len(self._ranges))
        members = []
        for other in others:
            at, inherited = other.members(other.around(first[asked]))
            members.append((asked[at], inherited))
        return self._chains(len(states), members, own=(place, number))

    def _chains(self, count: int, inherited: list[Members], own: Members | None = None) -> np.ndarray:
        """A new node for each distinct chain: at each of COUNT places, the INHERITED ranges and then its OWN."""
        parts = [*inherited, own] if own else inherited
        place = np.concatenate([place for place, _ in parts])
        number = np.concatenate([number for _, number in parts])
        is_own = np.repeat([False] * len(inherited) + [True] * bool(own), [len(place) for place, _ in parts])
        order = np.lexsort((number, is_own, place))
        place, number = place[order], number[order]
        first = np.searchsorted(place, np.arange(count))
        length = np.diff(np.append(first, len(place)))
        nodes = np.full(count, NONE)
        for level in range(length.max(initial=0)):
            here = np.flatnonzero(length > level)
            key = (nodes[here] + 1) * len(self._ranges) + number[first[here] + level]
            distinct, inverse = compact(key)
            self._more_parents.append(distinct // len(self._ranges) - 1)
            self._more_ranges.append(distinct % len(self._ranges))
            nodes[here] = self._count + inverse
            self._count += len(distinct)
        return nodes


def _threads(ranges: Ranges) -> tuple[dict[int, Thread], np.ndarray]:
    """Every thread that has ranges by its global id, in order of ids, and the range around each range on its thread."""
    parent = np.full(len(ranges), NONE)
    threads: dict[int, Thread] = {}
    for thread_id, process in _pairs(ranges.thread, ranges.process):
        numbers = np.flatnonzero(ranges.thread == thread_id)
        around = parents_if_nested(ranges.start_ns[numbers], ranges.end_ns[numbers])
        if around is None:
            thread = InterleavedThread(process, numbers, ranges.start_ns, ranges.end_ns)
        else:
            parent[numbers] = np.append(numbers, NONE)[around]
            thread = NestedThread(process, numbers, ranges.start_ns, ranges.end_ns, parent)
        threads[thread_id] = thread
    return threads, parent


def _others(threads: dict[int, Thread], thread: Thread) -> list[Thread]:
    return [other for other in threads.values() if other is not thread and other.process == thread.process]


def _pairs(threads: np.ndarray, processes: np.ndarray) -> list[tuple[int, int]]:
    """The distinct threads, ascending, each with its process."""
    distinct, first = np.unique(threads, return_index=True)
    return list(zip(distinct.tolist(), processes[first].tolist(), strict=True))
