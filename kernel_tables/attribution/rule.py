"""Which ranges each launch belongs to: the rule of attribution. Integer nanoseconds; no table, no SQL.

A launch belongs to the ranges that are open at its time on its thread. It also inherits ranges of other threads of its
process: those that enclose the outermost of its thread's open ranges, or, if its thread has none open, those that are
open at the launch. Inherited ranges come first, by (start, longest first, thread, row), then those of its thread in
opening order. For example:

    thread 1   step 0-100, backward 40-90 inside it
    thread 2   MulBackward 50-60

A launch on thread 2 at 55 has the chain step > backward > MulBackward, since both enclose MulBackward. One at 70 has
step > backward, since these are open at 70. One at 95 has step.
"""

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution import arrays, limits
from kernel_tables.attribution.forest import Attribution, ChainMembers, Forest
from kernel_tables.attribution.nesting import ThreadRanges
from kernel_tables.attribution.ranges import NONE, Ranges
from kernel_tables.global_ids import process_of


class InheritedNodes(NamedTuple):
    """The nodes of one thread that queries on other threads inherit."""

    query_index: np.ndarray  # ascending
    node: np.ndarray


class RangeAttributor:
    """Attributes launches to the ranges of a capture. It is made from the ranges, before the launches are known;
    `attribution` can be called once.

    A query is a launch, or the outermost range of a thread, that may inherit ranges of other threads.
    """

    def __init__(self, ranges: Ranges):
        self._ranges = ranges
        self._threads = _threads_by_id(ranges)
        self._lock = Lock()  # for the forest, which grows, and the number of pairs
        self._pair_count = 0
        node_count = len(ranges) + sum(thread.segment_nodes for thread in self._threads.values())
        parent, innermost = (np.empty(node_count, np.int32) for _ in range(2))
        self._end_ns = np.empty(node_count, np.int64)
        self._threads_of: dict[int, list[ThreadRanges]] = {}  # by process
        for thread in self._threads.values():
            parent[thread.nodes] = thread.parents
            innermost[thread.nodes] = thread.range_numbers
            self._end_ns[thread.nodes] = thread.ends_ns
            self._threads_of.setdefault(process_of(thread.thread_id), []).append(thread)
        self._forest = Forest(len(ranges), parent, innermost)
        self._root_parents = [
            self._parents_of_roots(threads) for threads in self._threads_of.values() if len(threads) > 1
        ]

    def attribution(self, launch_ns: np.ndarray, launch_thread_index: np.ndarray, threads: np.ndarray) -> Attribution:
        """The chain of ranges of every launch.

        `launch_ns` is the start of its API call, `launch_thread_index` the index of its thread in `threads` (global
        ids), NONE if the call is unknown.
        """
        thread_ranges = [self._threads.get(thread_id) for thread_id in threads.tolist()]

        def nodes_of_block(block: slice) -> np.ndarray:
            times_ns, thread_index = launch_ns[block], launch_thread_index[block]
            nodes = np.full(len(times_ns), NONE, np.int32)
            positions_by_thread = arrays.positions_by_group(thread_index, len(threads))
            for thread, positions in zip(thread_ranges, positions_by_thread, strict=True):
                if thread and len(positions):
                    nodes[positions] = thread.nodes_at(times_ns[positions])
            rest = np.flatnonzero((nodes == NONE) & (thread_index != NONE))  # no range is open on their threads
            nodes[rest] = self._inherited_at_launches(times_ns[rest], threads[thread_index[rest]])
            return nodes

        launch_node = arrays.map_blocks(nodes_of_block, len(launch_ns), np.int32)
        parent, innermost = self._forest.parent, self._forest.range
        for roots, nodes_around in self._root_parents:
            parent[roots] = nodes_around
        del self._threads, self._threads_of, self._end_ns, self._forest  # they take much memory
        return Attribution(
            parent, innermost, launch_node=launch_node, activity_node=launch_node, first_replayed=len(parent)
        )

    def _parents_of_roots(self, threads: list[ThreadRanges]) -> tuple[np.ndarray, np.ndarray]:
        """The outermost nodes of the `threads` of one process, and the node that each inherits from other threads."""
        is_root = [thread.parents == NONE for thread in threads]
        roots = np.concatenate([thread.nodes[mask] for thread, mask in zip(threads, is_root, strict=True)])
        outermost = np.concatenate([thread.range_numbers[mask] for thread, mask in zip(threads, is_root, strict=True)])
        order = np.argsort(outermost, kind="stable")  # numbers of ranges ascend with time
        roots, outermost = roots[order], outermost[order]
        inherited = self._inherited_nodes(
            threads,
            times_ns=self._ranges.start_ns[outermost],
            thread_ids=self._ranges.thread[outermost],
            nodes_of=lambda thread, queries: self._nodes_around(thread, outermost[queries]),
        )
        return roots, inherited

    def _inherited_at_launches(self, times_ns: np.ndarray, thread_ids: np.ndarray) -> np.ndarray:
        """For each launch, the node of the ranges that are open on other threads of its process; NONE if none is."""
        nodes = np.full(len(times_ns), NONE, np.int32)
        processes, process_index = arrays.factorize(process_of(thread_ids))
        positions_by_process = arrays.positions_by_group(process_index, len(processes))
        for process, positions in zip(processes.tolist(), positions_by_process, strict=True):
            if threads := self._threads_of.get(process):
                positions = positions[np.argsort(times_ns[positions], kind="stable")]
                sorted_ns = times_ns[positions]
                nodes[positions] = self._inherited_nodes(
                    threads,
                    times_ns=sorted_ns,
                    thread_ids=thread_ids[positions],
                    nodes_of=lambda thread, queries, sorted_ns=sorted_ns: thread.nodes_at(sorted_ns[queries]),
                )
        return nodes

    def _inherited_nodes(
        self, threads: list[ThreadRanges], times_ns: np.ndarray, thread_ids: np.ndarray,
        nodes_of: Callable[[ThreadRanges, np.ndarray], np.ndarray],
    ) -> np.ndarray:  # fmt: skip
        """The node of all ranges that each query inherits from other threads, NONE if there are none.

        A query is (times_ns[i], thread_ids[i]), in order of time. nodes_of(thread, queries) are the nodes of a thread
        that these queries inherit.
        """
        offers = []
        for thread in threads:
            first, last = np.searchsorted(times_ns, (thread.first_ns, thread.last_ns))  # outside, no range is open
            queries = first + np.flatnonzero(thread_ids[first:last] != thread.thread_id)
            nodes = nodes_of(thread, queries)
            is_open = nodes != NONE
            offers.append(InheritedNodes(queries[is_open], nodes[is_open]))
            self._count_pairs(int(is_open.sum()))
        return self._merged_nodes(offers, len(times_ns))

    def _count_pairs(self, further_pairs: int) -> None:
        with self._lock:
            self._pair_count += further_pairs
            limits.require_pairs(
                self._pair_count, "pairs of a launch, or a range, and another thread whose ranges are around it"
            )

    def _nodes_around(self, thread: ThreadRanges, ranges: np.ndarray) -> np.ndarray:
        """For each of `ranges`, which are of other threads, the node of the ranges of `thread` that enclose it."""
        forest = self._forest
        nodes = thread.nodes_at(self._ranges.start_ns[ranges])
        pending = np.flatnonzero(nodes != NONE)  # move outwards, each until it is at a range that encloses
        while len(pending):
            pending = pending[~self._ranges.encloses(forest.range[nodes[pending]], ranges[pending])]
            nodes[pending] = forest.parent[nodes[pending]]
            pending = pending[nodes[pending] != NONE]
        enclosed = np.flatnonzero(nodes != NONE)
        broken = enclosed[self._end_ns[nodes[enclosed]] < self._ranges.end_ns[ranges[enclosed]]]
        if len(broken):  # a range further out ends too early, so only a part of the chain encloses the range
            query, range_index = forest.members(nodes[broken])
            encloses = self._ranges.encloses(range_index, ranges[broken[query]])
            nodes[broken] = forest.add_chains(len(broken), ChainMembers(query[encloses], range_index[encloses]))
        return nodes

    def _merged_nodes(self, offers: list[InheritedNodes], count: int) -> np.ndarray:
        """The node of all ranges offered to each of `count` queries, which are in order of time."""
        query, node = (np.concatenate(parts) for parts in zip(*offers, strict=True))
        merged, offer_count = np.full(count, NONE), np.bincount(query, minlength=count)
        merged[query] = node  # complete if only one thread offers: its node has the ranges further out, too
        several = np.flatnonzero(offer_count > 1)
        if len(several):
            contested = np.flatnonzero(offer_count[query] > 1)
            contested = contested[np.argsort(query[contested], kind="stable")]
            with self._lock:
                merged[several] = self._joint_nodes(node[contested], offer_count[several])
        return merged

    def _joint_nodes(self, nodes: np.ndarray, offer_count: np.ndarray) -> np.ndarray:
        """For each query with several offers, the node of all ranges that are offered to it. `nodes` are the offers,
        query after query; offer_count[i] of them are to the i-th.

        A query with the same offers as the previous query has the same node.
        """
        first = np.cumsum(offer_count) - offer_count
        # The index of the same offer to the previous query, if that has as many offers.
        index_in_previous = np.arange(len(nodes)) - np.repeat(offer_count, offer_count)
        differs = (index_in_previous < 0) | (nodes != nodes[index_in_previous])
        is_new = np.logical_or.reduceat(differs, first)
        is_new[1:] |= offer_count[1:] != offer_count[:-1]
        offer, range_index = self._forest.members(nodes[np.repeat(is_new, offer_count)])
        new_count = int(is_new.sum())
        new_query = np.repeat(np.arange(new_count), offer_count[is_new])[offer]
        return self._forest.add_chains(new_count, ChainMembers(new_query, range_index))[np.cumsum(is_new) - 1]


def _threads_by_id(ranges: Ranges) -> dict[int, ThreadRanges]:
    """Every thread that has ranges, by its global id."""
    threads: dict[int, ThreadRanges] = {}
    next_node = len(ranges)
    ids, thread_index = arrays.factorize(ranges.thread)
    for thread_id, range_numbers in zip(ids.tolist(), arrays.positions_by_group(thread_index, len(ids)), strict=True):
        threads[thread_id] = ThreadRanges(thread_id, range_numbers, ranges, next_node)
        next_node += threads[thread_id].segment_nodes
    return threads
