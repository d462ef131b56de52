"""When each phase was open, so that every moment of a thread is in one phase or in none."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.ranges import NONE
from kernel_tables.intervals import NOTHING, Intervals, difference, union
from kernel_tables.reading.global_ids import process_of
from kernel_tables.views.phases import OUTSIDE, phases_and_parts


class Phases(dict[str, Intervals]):
    """When each phase was open; no two of them share time."""

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The phase at each of TIMES, OUTSIDE where none is open."""
        found = np.full(len(times_ns), OUTSIDE, object)
        for label, opened in self.items():
            piece = np.searchsorted(opened.start_ns, times_ns, "right") - 1
            found[(piece >= 0) & (times_ns < np.append(opened.end_ns, 0)[piece])] = label
        return found


class OpenPhases:
    """The ranges that are phases themselves, not what is nested in them or has their name elsewhere."""

    def __init__(self, trace: CaptureArrays, step_name: str):
        self._ranges, paths = trace.range_arrays, trace.range_paths
        path = paths.of_node[: len(self._ranges)]
        labels = phases_and_parts(paths.tuples, step_name)[0]
        self._label = np.array(labels, object)[path]
        own_name = np.array([paths.code(label) for label in labels], np.int64)[path]
        self._is_phase = (self._ranges.name == own_name) & (own_name != NONE)
        self._in_step = np.array([step_name in names for names in paths.tuples], bool)[path]
        self._is_step = self._ranges.name == paths.code(step_name)

    def of(self, thread: int) -> Phases:
        """The phases of a thread: its own where it opened any, else those of its process. One outside of steps is
        interrupted by them."""
        ranges = self._ranges
        mine = ranges.thread == thread
        if not (mine & self._is_phase).any():
            mine = ranges.process == process_of(thread)
        found = Phases()
        taken = NOTHING
        for in_step in (True, False):
            chosen = mine & self._is_phase & (self._in_step == in_step)
            for label in dict.fromkeys(self._label[chosen].tolist()):
                opened = difference(self._covered(chosen & (self._label == label)), taken)
                found[label] = _both(found.get(label, NOTHING), opened)
                taken = _both(taken, opened)
            taken = _both(taken, self._covered(mine & self._is_step))
        return found

    def _covered(self, chosen: np.ndarray) -> Intervals:
        return union(self._ranges.start_ns[chosen], self._ranges.end_ns[chosen])


def _both(one: Intervals, other: Intervals) -> Intervals:
    return union(np.append(one.start_ns, other.start_ns), np.append(one.end_ns, other.end_ns))
