"""Which ranges each launch belongs to. Pure numpy, integer nanoseconds; no table, no SQL.

The rule: a launch belongs to the ranges open at its time on its own thread, and inherits those of other threads of its
process that enclose its thread's outermost open range, or that are open at the launch where its thread has none.
Inherited ranges come first, ordered by (start, longest first, thread, row), then its own in opening order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.keys import compact, grouped
from kernel_tables.attribution.threads import NONE, InterleavedThread, NestedThread, parents_if_nested
from kernel_tables.reading.global_ids import process_of

Thread = NestedThread | InterleavedThread
Members = tuple[np.ndarray, np.ndarray]  # (place, number of a range), one entry per range of each place


@dataclass(frozen=True)
class Ranges:
    """All range instances in opening order: by start, longest first, thread, row. A range's index is its number."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    thread: np.ndarray  # global id
    name: np.ndarray  # code of the name
    row: np.ndarray  # where it stood in the table

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def process(self) -> np.ndarray:
        """The global id of the process of each range."""
        return process_of(self.thread)


def in_opening_order(start_ns, end_ns, thread, name) -> Ranges:
    """The ranges, sorted; an end before its start is taken for the start."""
    end_ns = np.maximum(start_ns, end_ns)
    order = np.lexsort((thread, -end_ns, start_ns))
    return Ranges(start_ns[order], end_ns[order], thread[order], name[order], order)


@dataclass(frozen=True)
class Attribution:
    """Every chain of open ranges that occurs, as a forest, and the chain of each launch.

    A node is a range with the chain of ranges around it; its parent is the node of that chain without the range.
    The first len(ranges) nodes are the ranges themselves, as they were opened.
    """

    parent: np.ndarray  # node -> node, or NONE
    range: np.ndarray  # node -> number of its innermost range
    launch_node: np.ndarray  # launch -> node, or NONE where no range is open or the launch is not known

    def levels(self) -> list[np.ndarray]:
        """The nodes by their depth: every parent stands in the level before its children."""
        depth = self.totals((self.parent != NONE).astype(np.int64))
        return grouped(depth, int(depth.max(initial=0)) + 1)

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


def attribute(ranges: Ranges, launch_ns: np.ndarray, launch_thread: np.ndarray, threads: np.ndarray) -> Attribution:
    """The chain of ranges of every launch.

    LAUNCH_NS is the start of its API call, LAUNCH_THREAD the index of its thread in THREADS (global ids), NONE where
    the call is not known.
    """
    with_ranges, parent = _threads(ranges)
    forest = _Forest(ranges, parent)
    for thread in with_ranges.values():
        forest.set_inherited(thread, _others(with_ranges, thread.thread_id))
    launch_node = np.full(len(launch_ns), NONE, np.int32)
    for thread_id, here in zip(threads.tolist(), grouped(launch_thread + 1, len(threads) + 1)[1:], strict=True):
        own, others = with_ranges.get(thread_id), _others(with_ranges, thread_id)
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
            own = thread.opened_before(thread.numbers)
            self._parent[thread.numbers] = self._mixed(own, others, outermost=thread.numbers.copy())

    def launch_nodes(self, times_ns: np.ndarray, own: Thread | None, others: list[Thread]) -> np.ndarray:
        """The node of each launch on a thread with the ranges OWN."""
        nodes = own.at(times_ns) if own else np.full(len(times_ns), NONE)
        bare = np.flatnonzero(nodes == NONE)
        if isinstance(own, InterleavedThread):
            states, inverse = compact(nodes)
            nothing = np.full(len(states), len(self._ranges))
            nodes = self._mixed(own.members(states), others, outermost=nothing)[inverse]
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

    def _mixed(self, own: Members, others: list[Thread], outermost: np.ndarray) -> np.ndarray:
        """The node at each place of an interleaved thread, where its OWN ranges are open.

        OUTERMOST is the outermost range of each place but for its own ones, len(ranges) for none; it is overwritten.
        """
        np.minimum.at(outermost, *own)
        asked = np.flatnonzero(outermost < len(self._ranges))
        inherited = []
        for other in others:
            place, number = other.members(other.around(outermost[asked]))
            inherited.append((asked[place], number))
        return self._chains(len(outermost), inherited, own)

    def _chains(self, count: int, inherited: list[Members], own: Members | None = None) -> np.ndarray:
        """The node of the chain at each of COUNT places: the INHERITED ranges and then its OWN, each in opening order.

        The places are in order of time, so a chain that comes twice stands side by side: neighbours share their nodes.
        """
        parts = [*inherited, own] if own else inherited
        keys = [
            (2 * place + (part is own)) * len(self._ranges) + number
            for part, (place, number) in zip(parts, parts, strict=True)
        ]
        keys = np.sort(np.concatenate(keys))
        place, number = keys // (2 * len(self._ranges)), keys % len(self._ranges)
        length = np.bincount(place, minlength=count)
        first = np.cumsum(length) - length
        nodes = np.full(count, NONE)
        differs = np.zeros(
            count, bool
        )  # whether the chain, as far as it was looked at, is not that of the place before
        for level in range(length.max(initial=0)):
            here = np.flatnonzero(length > level)
            innermost = number[first[here] + level]
            differs[here[1:]] |= (np.diff(here) > 1) | (innermost[1:] != innermost[:-1])
            differs[here[0]] = True
            is_new = differs[here]
            self._more_parents.append(nodes[here[is_new]])
            self._more_ranges.append(innermost[is_new])
            nodes[here] = self._count - 1 + np.cumsum(is_new)
            self._count += int(is_new.sum())
        return nodes


def _threads(ranges: Ranges) -> tuple[dict[int, Thread], np.ndarray]:
    """Every thread that has ranges by its global id, in order of ids, and the range around each range on its thread."""
    parent = np.full(len(ranges), NONE)
    threads: dict[int, Thread] = {}
    ids, thread = compact(ranges.thread)
    for thread_id, numbers in zip(ids.tolist(), grouped(thread, len(ids)), strict=True):
        around = parents_if_nested(ranges.start_ns[numbers], ranges.end_ns[numbers])
        if around is None:
            threads[thread_id] = InterleavedThread(thread_id, numbers, ranges.start_ns, ranges.end_ns)
        else:
            parent[numbers] = np.append(numbers, NONE)[around]
            threads[thread_id] = NestedThread(thread_id, numbers, ranges.start_ns, ranges.end_ns, parent)
    return threads, parent


def _others(threads: dict[int, Thread], thread_id: int) -> list[Thread]:
    """The threads of the same process but for this one."""
    process = process_of(thread_id)
    return [other for key, other in threads.items() if key != thread_id and process_of(key) == process]
