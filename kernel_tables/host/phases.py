"""When each phase was open, so that every moment of a thread is in one phase or in none."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.keys import compact, grouped
from kernel_tables.host.pieces import NOBODY, Pieces, first_of_open
from kernel_tables.reading.global_ids import process_of
from kernel_tables.views.phases import OUTSIDE, phases_and_parts


class OpenPhases:
    """The ranges that are phases themselves, not what is nested in them or has their name elsewhere. `names` are those
    of the phases, by their numbers, and OUTSIDE behind them."""

    def __init__(self, trace: CaptureArrays, step_name: str):
        self._ranges, paths = trace.range_arrays, trace.range_paths
        path = paths.of_node[: len(self._ranges)]
        labels = phases_and_parts(paths.tuples, step_name)[0]
        self.names = [*dict.fromkeys(label for label in labels if label != OUTSIDE), OUTSIDE]
        number = {name: index for index, name in enumerate(self.names)}
        own_names = [names[-1] if names else OUTSIDE for names in paths.tuples]
        is_phase = np.array([own == label != OUTSIDE for own, label in zip(own_names, labels, strict=True)], bool)
        self._phase = np.where(is_phase, [number[label] for label in labels], NOBODY)[path]
        self._in_step = np.array([step_name in names for names in paths.tuples], bool)[path]
        self._is_step = np.array([own == step_name for own in own_names], bool)[path]
        of_thread, of_process = _positions(self._ranges.thread), _positions(self._ranges.process)
        self._own = {thread: mine for thread, mine in of_thread.items() if (self._phase[mine] != NOBODY).any()}
        self._of_process = of_process
        self._found: dict[int, Pieces] = {}

    def of(self, thread: int) -> Pieces:
        """The phases of a thread, by number: its own where it opened any, else those of its process. One outside of
        steps is interrupted by them."""
        if thread in self._own:
            return self._pieces(self._own[thread])
        process = process_of(thread)
        if process not in self._found:  # that many threads share
            self._found[process] = self._pieces(self._of_process.get(process, np.empty(0, np.int64)))
        return self._found[process]

    def _pieces(self, mine: np.ndarray) -> Pieces:
        """Where phases overlap, the one that came first has the time; those in steps before steps, and these before
        those outside of them."""
        ranges, is_phase, in_step = self._ranges, self._phase[mine] != NOBODY, self._in_step[mine]
        inside, steps, outside = mine[is_phase & in_step], mine[self._is_step[mine]], mine[is_phase & ~in_step]
        taken = np.concatenate([inside, steps, outside])
        phase = np.concatenate([self._phase[inside], np.full(len(steps), NOBODY), self._phase[outside]])
        place = np.concatenate(
            [self._first(inside), np.full(len(steps), len(ranges)), len(ranges) + 1 + self._first(outside)]
        )
        return first_of_open(ranges.start_ns[taken], ranges.end_ns[taken], place).of_owners(phase)

    def _first(self, positions: np.ndarray) -> np.ndarray:
        """The first of POSITIONS that has the phase of each."""
        _, first, index = np.unique(self._phase[positions], return_index=True, return_inverse=True)
        return positions[first][index.reshape(-1)]


def _positions(ids: np.ndarray) -> dict[int, np.ndarray]:
    """The positions of every id, ascending."""
    distinct, index = compact(ids)
    return dict(zip(distinct.tolist(), grouped(index, len(distinct)), strict=True))
