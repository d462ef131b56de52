"""Which ranges each launch belongs to: the rule. Integer nanoseconds; no table, no SQL.

A launch belongs to the ranges open at its time on its own thread, and inherits those of other threads of its process
that enclose its thread's outermost open range, or that are open at the launch where its thread has none. Inherited
ranges come first, ordered by (start, longest first, thread, row), then its own in opening order.
"""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.forest import Attribution, Forest, Members
from kernel_tables.attribution.interleaved_thread import InterleavedThread
from kernel_tables.attribution.keys import compact, grouped
from kernel_tables.attribution.nested_thread import NestedThread, nesting
from kernel_tables.attribution.ranges import NONE, Ranges
from kernel_tables.reading.global_ids import process_of

Thread = NestedThread | InterleavedThread


class Rule:
    """The rule for the ranges of one capture. Made before the launches are known; good for one `attribution`."""

    def __init__(self, ranges: Ranges):
        self._ranges = ranges
        self._threads, within = _threads(ranges)
        self._forest = Forest(within.copy())
        for thread in self._threads.values():
            self._set_inherited(thread, within)

    def attribution(self, launch_ns: np.ndarray, launch_thread: np.ndarray, threads: np.ndarray) -> Attribution:
        """The chain of ranges of every launch.

        LAUNCH_NS is the start of its API call, LAUNCH_THREAD the index of its thread in THREADS (global ids), NONE
        where the call is not known.
        """
        launch_node = np.full(len(launch_ns), NONE, np.int32)
        for thread_id, here in zip(threads.tolist(), grouped(launch_thread + 1, len(threads) + 1)[1:], strict=True):
            launch_node[here] = self._launch_nodes(launch_ns[here], thread_id)
        return self._forest.finished(launch_node)

    def _others(self, thread_id: int) -> list[Thread]:
        """The other threads of the same process that have ranges."""
        process = process_of(thread_id)
        return [other for key, other in self._threads.items() if key != thread_id and process_of(key) == process]

    def _set_inherited(self, thread: Thread, within: np.ndarray) -> None:
        """Puts what other threads have around it below each range of THREAD; WITHIN is what its own thread has."""
        others = self._others(thread.thread_id)
        if isinstance(thread, NestedThread):
            roots = thread.numbers[within[thread.numbers] == NONE]
            offers = [(other, other.around(roots)) for other in others]
            self._forest.parent[roots] = self._inherited(offers, len(roots))
        else:
            own = thread.opened_before(thread.numbers)
            self._forest.parent[thread.numbers] = self._mixed(own, others, outermost=thread.numbers.copy())

    def _launch_nodes(self, times_ns: np.ndarray, thread_id: int) -> np.ndarray:
        """The node of each launch on a thread."""
        own, others = self._threads.get(thread_id), self._others(thread_id)
        nodes = own.at(times_ns) if own else np.full(len(times_ns), NONE)
        without_own = np.flatnonzero(nodes == NONE)
        if isinstance(own, InterleavedThread):
            states, state_of = compact(nodes)
            nobody = np.full(len(states), len(self._ranges))
            nodes = self._mixed(own.members(states), others, outermost=nobody)[state_of]
        offers = [(other, other.at(times_ns[without_own])) for other in others]
        nodes[without_own] = self._inherited(offers, len(without_own))
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
            distinct, index = compact(states)
            key = compact(key * len(distinct) + index)[1].astype(np.int64)
        example = np.zeros(key.max() + 1, np.int64)
        example[key] = np.arange(count)
        members = [thread.members(states[example]) for thread, states in offers]
        return self._forest.chains(len(example), members)[key]

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
        return self._forest.chains(len(outermost), inherited, own)


def _threads(ranges: Ranges) -> tuple[dict[int, Thread], np.ndarray]:
    """(every thread that has ranges by its global id, the range around each range on its own thread)."""
    within = np.full(len(ranges), NONE)
    threads: dict[int, Thread] = {}
    ids, thread = compact(ranges.thread)
    for thread_id, numbers in zip(ids.tolist(), grouped(thread, len(ids)), strict=True):
        nested = nesting(ranges.start_ns[numbers], ranges.end_ns[numbers])
        if nested is None:
            threads[thread_id] = InterleavedThread(thread_id, numbers, ranges)
        else:
            within[numbers] = np.append(numbers, NONE)[nested.parent]
            threads[thread_id] = NestedThread(thread_id, numbers, ranges, nested, within)
    return threads, within
