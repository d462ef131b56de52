"""Which ranges each launch belongs to: the rule. Integer nanoseconds; no table, no SQL.

A launch belongs to the ranges open at its time on its own thread, and inherits those of other threads of its process
that enclose its thread's outermost open range, or that are open at the launch where its thread has none. Inherited
ranges come first, ordered by (start, longest first, thread, row), then its own in opening order.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from kernel_tables.attribution.blocks import made_by_block
from kernel_tables.attribution.forest import Attribution, Forest
from kernel_tables.attribution.keys import compact, grouped
from kernel_tables.attribution.limits import require_pairs
from kernel_tables.attribution.ranges import NONE, Ranges
from kernel_tables.attribution.thread import Thread
from kernel_tables.reading.global_ids import process_of

Offer = tuple[np.ndarray, np.ndarray]  # (place, node of one thread that is open there), the places ascending
NodesOf = Callable[[Thread, np.ndarray], np.ndarray]  # of a thread at places


class Rule:
    """The rule for the ranges of one capture. Made before the launches are known; good for one `attribution`."""

    def __init__(self, ranges: Ranges):
        self._ranges = ranges
        self._threads = _threads(ranges)
        self._lock = Lock()  # of what follows: the forest, which grows, and the number of pairs
        self._pairs = 0
        nodes = len(ranges) + sum(thread.more_nodes for thread in self._threads.values())
        own_parent, innermost, self._end_ns = (np.empty(nodes, np.int64) for _ in range(3))
        for thread in self._threads.values():
            own_parent[thread.nodes] = thread.parents
            innermost[thread.nodes] = thread.ranges
            self._end_ns[thread.nodes] = thread.ends_ns
        self._forest = Forest(len(ranges), own_parent, innermost)
        self._by_process: dict[int, list[Thread]] = {}
        for thread in self._threads.values():
            self._by_process.setdefault(process_of(thread.thread_id), []).append(thread)
        self._inherited_by = [
            self._inherited_by_roots(threads) for threads in self._by_process.values() if len(threads) > 1
        ]

    def attribution(self, launch_ns: np.ndarray, launch_thread: np.ndarray, threads: np.ndarray) -> Attribution:
        """The chain of ranges of every launch.

        LAUNCH_NS is the start of its API call, LAUNCH_THREAD the index of its thread in THREADS (global ids), NONE
        where the call is not known.
        """
        own = [self._threads.get(thread_id) for thread_id in threads.tolist()]

        def of_block(block: slice) -> np.ndarray:
            times_ns, thread = launch_ns[block], launch_thread[block]
            nodes = np.full(len(times_ns), NONE, np.int32)
            for own_thread, here in zip(own, grouped(thread, len(own)), strict=True):
                if own_thread and len(here):
                    nodes[here] = own_thread.at(times_ns[here])
            bare = np.flatnonzero((nodes == NONE) & (thread != NONE))
            nodes[bare] = self._inherited_by_launches(times_ns[bare], threads[thread[bare]])
            return nodes

        launch_node = made_by_block(of_block, len(launch_ns), np.int32)
        parent = self._forest.parent.copy()
        for roots, inherited in self._inherited_by:
            parent[roots] = inherited
        return Attribution(parent, self._forest.range, launch_node)

    def _inherited_by_roots(self, threads: list[Thread]) -> tuple[np.ndarray, np.ndarray]:
        """(the outermost nodes of the threads of a process, the node of what each inherits from the others)."""
        is_root = [thread.parents == NONE for thread in threads]
        roots = np.concatenate([thread.nodes[here] for thread, here in zip(threads, is_root, strict=True)])
        outermost = np.concatenate([thread.ranges[here] for thread, here in zip(threads, is_root, strict=True)])
        order = np.argsort(outermost, kind="stable")  # of ranges: of time
        roots, outermost = roots[order], outermost[order]
        offers = self._offers(
            threads, self._ranges.start_ns[outermost], self._ranges.thread[outermost],
            lambda thread, places: self._around(thread, outermost[places]),
        )  # fmt: skip
        return roots, self._merged(offers, len(roots))

    def _inherited_by_launches(self, times_ns: np.ndarray, thread: np.ndarray) -> np.ndarray:
        """The node of what is open on other threads of its process at each launch, which has a THREAD."""
        nodes = np.full(len(times_ns), NONE, np.int32)
        processes, process = compact(process_of(thread))
        for process_id, here in zip(processes.tolist(), grouped(process, len(processes)), strict=True):
            if process_id in self._by_process:
                here = here[np.argsort(times_ns[here], kind="stable")]
                nodes[here] = self._inherited_by_sorted(self._by_process[process_id], times_ns[here], thread[here])
        return nodes

    def _inherited_by_sorted(self, threads: list[Thread], times_ns: np.ndarray, thread: np.ndarray) -> np.ndarray:
        """The node of what is open on other THREADS of a process at its launches in order of time."""
        offers = self._offers(threads, times_ns, thread, lambda other, places: other.at(times_ns[places]))
        return self._merged(offers, len(times_ns))

    def _offers(
        self, threads: list[Thread], times_ns: np.ndarray, thread: np.ndarray, nodes_of: NodesOf
    ) -> list[Offer]:
        """What each of THREADS offers, by NODES_OF, to those places of other threads that lie within its time.

        A place has a time, and they ascend, and a THREAD.
        """
        offers = []
        for other in threads:
            first, last = np.searchsorted(times_ns, (other.first_ns, other.last_ns))
            places = first + np.flatnonzero(thread[first:last] != other.thread_id)
            nodes = nodes_of(other, places)
            is_open = nodes != NONE
            offers.append((places[is_open], nodes[is_open]))
            self._count_pairs(len(offers[-1][0]))
        return offers

    def _count_pairs(self, more: int) -> None:
        with self._lock:
            self._pairs += more
            require_pairs(self._pairs, "pairs of a launch, or a range, and another thread whose ranges are around it")

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

    def _merged(self, offers: list[Offer], count: int) -> np.ndarray:
        """The node of all that is offered to each of COUNT places, which come in order of time."""
        place, node = (np.concatenate(parts) for parts in zip(*offers, strict=True))
        merged, number = np.full(count, NONE), np.bincount(place, minlength=count)
        merged[place] = node  # right where one thread offers: what lies around its range would have been offered too
        several = np.flatnonzero(number > 1)
        if len(several):
            rest = np.flatnonzero(number[place] > 1)
            rest = rest[np.argsort(place[rest], kind="stable")]
            with self._lock:
                merged[several] = self._of_several(node[rest], number[several])
        return merged

    def _of_several(self, nodes: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The node of each place to which several are offered: NODES, as many as NUMBER says, place by place."""
        first = np.cumsum(number) - number
        before = np.arange(len(nodes)) - np.repeat(
            number, number
        )  # where the place before has the same offer, if alike
        differs = (before < 0) | (nodes != nodes[before])
        is_new = np.logical_or.reduceat(differs, first)
        is_new[1:] |= number[1:] != number[:-1]
        chosen = np.repeat(is_new, number)
        of_chain, innermost = self._forest.members(nodes[chosen])
        chain = np.repeat(np.arange(int(is_new.sum())), number[is_new])[of_chain]
        return self._forest.chains(int(is_new.sum()), [(chain, innermost)])[np.cumsum(is_new) - 1]


def _threads(ranges: Ranges) -> dict[int, Thread]:
    """Every thread that has ranges, by its global id."""
    threads: dict[int, Thread] = {}
    next_node = len(ranges)
    ids, thread = compact(ranges.thread)
    for thread_id, numbers in zip(ids.tolist(), grouped(thread, len(ids)), strict=True):
        threads[thread_id] = Thread(thread_id, numbers, ranges, next_node)
        next_node += threads[thread_id].more_nodes
    return threads
