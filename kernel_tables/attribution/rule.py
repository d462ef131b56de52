"""Which ranges each launch belongs to: the rule. Integer nanoseconds; no table, no SQL.

A launch belongs to the ranges open at its time on its own thread, and inherits those of other threads of its process
that enclose its thread's outermost open range, or that are open at the launch where its thread has none. Inherited
ranges come first, ordered by (start, longest first, thread, row), then its own in opening order.
"""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.forest import Attribution, Forest
from kernel_tables.attribution.keys import compact, grouped
from kernel_tables.attribution.ranges import NONE, Ranges
from kernel_tables.attribution.thread import Thread
from kernel_tables.reading.global_ids import process_of


class Rule:
    """The rule for the ranges of one capture. Made before the launches are known; good for one `attribution`."""

    def __init__(self, ranges: Ranges):
        self._ranges = ranges
        self._threads = _threads(ranges)
        nodes = len(ranges) + sum(thread.more_nodes for thread in self._threads.values())
        own_parent, innermost, self._end_ns = (np.empty(nodes, np.int64) for _ in range(3))
        for thread in self._threads.values():
            own_parent[thread.nodes] = thread.parents
            innermost[thread.nodes] = thread.ranges
            self._end_ns[thread.nodes] = thread.ends_ns
        self._forest = Forest(len(ranges), own_parent, innermost)
        self._inherited_by = [self._inherited_by_roots(thread) for thread in self._threads.values()]

    def attribution(self, launch_ns: np.ndarray, launch_thread: np.ndarray, threads: np.ndarray) -> Attribution:
        """The chain of ranges of every launch.

        LAUNCH_NS is the start of its API call, LAUNCH_THREAD the index of its thread in THREADS (global ids), NONE
        where the call is not known.
        """
        launch_node = np.full(len(launch_ns), NONE, np.int32)
        for thread_id, here in zip(threads.tolist(), grouped(launch_thread, len(threads)), strict=True):
            launch_node[here] = self._launch_nodes(launch_ns[here], thread_id)
        parent = self._forest.parent.copy()
        for roots, inherited in self._inherited_by:
            parent[roots] = inherited
        return Attribution(parent, self._forest.range, launch_node)

    def _others(self, thread_id: int) -> list[Thread]:
        """The other threads of the same process that have ranges."""
        process = process_of(thread_id)
        return [other for key, other in self._threads.items() if key != thread_id and process_of(key) == process]

    def _inherited_by_roots(self, thread: Thread) -> tuple[np.ndarray, np.ndarray]:
        """(the outermost nodes of a thread, the node of what each inherits)."""
        is_root = thread.parents == NONE
        roots, outermost = thread.nodes[is_root], thread.ranges[is_root]
        return roots, self._merged([self._around(other, outermost) for other in self._others(thread.thread_id)], roots)

    def _launch_nodes(self, times_ns: np.ndarray, thread_id: int) -> np.ndarray:
        """The node of each launch on a thread."""
        own = self._threads.get(thread_id)
        nodes = own.at(times_ns) if own else np.full(len(times_ns), NONE)
        bare = np.flatnonzero(nodes == NONE)
        nodes[bare] = self._merged([other.at(times_ns[bare]) for other in self._others(thread_id)], bare)
        return nodes

    def _around(self, thread: Thread, ranges: np.ndarray) -> np.ndarray:
        """The node of those ranges of a thread that enclose each of RANGES, which are other threads'."""
        forest = self._forest
        nodes = thread.at(self._ranges.start_ns[ranges])
        rest = np.flatnonzero(nodes != NONE)
        while len(rest):
            rest = rest[~self._ranges.encloses(forest.range[nodes[rest]], ranges[rest])]
            nodes[rest] = forest.parent[nodes[rest]]
            rest = rest[nodes[rest] != NONE]
        found = np.flatnonzero(nodes != NONE)
        broken = found[self._end_ns[nodes[found]] < self._ranges.end_ns[ranges[found]]]
        if len(broken):  # a range further out ends too early: only some of the chain encloses
            place, number = forest.members(nodes[broken])
            encloses = self._ranges.encloses(number, ranges[broken[place]])
            nodes[broken] = forest.chains(len(broken), [(place[encloses], number[encloses])])
        return nodes

    def _merged(self, offers: list[np.ndarray], places: np.ndarray) -> np.ndarray:
        """The node of all that other threads offer to each place; an offer is a thread's node at each of PLACES."""
        offers = [nodes for nodes in offers if (nodes != NONE).any()]
        if not offers:
            return np.full(len(places), NONE)
        if len(offers) == 1:
            return offers[0]  # what lies around the outermost range there would have been offered too
        key, *more_keys = (compact(nodes)[1] for nodes in offers)
        for more in more_keys:
            key = compact(key.astype(np.int64) * (int(more.max()) + 1) + more)[1]
        example = np.zeros(int(key.max()) + 1, np.int64)
        example[key] = np.arange(len(places))
        members = [self._forest.members(nodes[example]) for nodes in offers]
        return self._forest.chains(len(example), members)[key]


def _threads(ranges: Ranges) -> dict[int, Thread]:
    """Every thread that has ranges, by its global id."""
    threads: dict[int, Thread] = {}
    next_node = len(ranges)
    ids, thread = compact(ranges.thread)
    for thread_id, numbers in zip(ids.tolist(), grouped(thread, len(ids)), strict=True):
        threads[thread_id] = Thread(thread_id, numbers, ranges, next_node)
        next_node += threads[thread_id].more_nodes
    return threads
