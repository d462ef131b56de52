"""When each phase was open, so that every moment of a thread is in one phase or in none."""

import numpy as np

from kernel_tables.attribution.arrays import factorize, grouped
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import OUTSIDE, phases_and_parts
from kernel_tables.host.owned_intervals import NO_OWNER, OwnedIntervals, by_priority
from kernel_tables.reading.global_ids import process_of


class OpenPhases:
    """The ranges that are phases themselves, not ranges inside them or elsewhere with the same name.

    `names` are the names of the phases by number, OUTSIDE last.
    """

    def __init__(self, trace: CaptureArrays, step_name: str):
        self._ranges, paths = trace.range_arrays, trace.range_paths
        labels = phases_and_parts(paths.tuples, step_name)[0]
        self.names = [*dict.fromkeys(label for label in labels if label != OUTSIDE), OUTSIDE]
        number = {name: index for index, name in enumerate(self.names)}
        range_name = [names[-1] if names else OUTSIDE for names in paths.tuples]
        phase = [
            number[label] if name == label != OUTSIDE else NO_OWNER
            for name, label in zip(range_name, labels, strict=True)
        ]
        path = paths.of_node[: len(self._ranges)]
        self._phase = np.array(phase, np.int64)[path]
        self._in_step = np.array([step_name in names for names in paths.tuples], bool)[path]
        self._is_step = np.array([name == step_name for name in range_name], bool)[path]
        by_thread, self._by_process = _by_id(self._ranges.thread), _by_id(self._ranges.process)
        self._by_thread = {
            thread: ranges for thread, ranges in by_thread.items() if (self._phase[ranges] != NO_OWNER).any()
        }
        self._of_process: dict[int, OwnedIntervals] = {}  # shared by many threads

    def of_thread(self, thread: int) -> OwnedIntervals:
        """The phases that this thread opened, by number; if it opened none, those of its process.

        A phase outside steps is interrupted by steps.
        """
        if thread in self._by_thread:
            return self._intervals(self._by_thread[thread])
        process = process_of(thread)
        if process not in self._of_process:
            self._of_process[process] = self._intervals(self._by_process.get(process, np.empty(0, np.int64)))
        return self._of_process[process]

    def _intervals(self, ranges: np.ndarray) -> OwnedIntervals:
        """Where phases overlap, the earliest has priority; phases in steps precede steps, and these precede
        phases outside steps."""
        is_phase, in_step = self._phase[ranges] != NO_OWNER, self._in_step[ranges]
        inside, steps, outside = ranges[is_phase & in_step], ranges[self._is_step[ranges]], ranges[is_phase & ~in_step]
        count = len(self._ranges)
        numbers = np.concatenate([inside, steps, outside])
        phase = np.concatenate([self._phase[inside], np.full(len(steps), NO_OWNER), self._phase[outside]])
        priority = np.concatenate([self._first(inside), np.full(len(steps), count), count + 1 + self._first(outside)])
        return by_priority(self._ranges.start_ns[numbers], self._ranges.end_ns[numbers], priority).renumbered(phase)

    def _first(self, ranges: np.ndarray) -> np.ndarray:
        """The first of `ranges` with the same phase as each."""
        _, first, index = np.unique(self._phase[ranges], return_index=True, return_inverse=True)
        return ranges[first][index.reshape(-1)]


def _by_id(ids: np.ndarray) -> dict[int, np.ndarray]:
    """The positions of every id, ascending."""
    distinct, index = factorize(ids)
    return dict(zip(distinct.tolist(), grouped(index, len(distinct)), strict=True))
