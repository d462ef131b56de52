"""Range instances as arrays. A range's number is its place in opening order, so a smaller number was opened earlier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.reading.global_ids import process_of

NONE = -1  # no range, no node, no name


@dataclass(frozen=True)
class Ranges:
    """All range instances in opening order: by start, longest first, thread, row of the table. Integer nanoseconds.

    A range is open at a time t when start <= t < end, so one of no duration is never open.
    """

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

    def encloses(self, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Whether each range OUTER encloses its INNER in time without having the same start and end."""
        starts, ends = self.start_ns, self.end_ns
        covers = (starts[outer] <= starts[inner]) & (ends[inner] <= ends[outer])
        return covers & ((starts[outer] != starts[inner]) | (ends[inner] != ends[outer]))


def in_opening_order(start_ns: np.ndarray, end_ns: np.ndarray, thread: np.ndarray, name: np.ndarray) -> Ranges:
    """The ranges, sorted; an end before its start is taken for the start."""
    end_ns = np.maximum(start_ns, end_ns)
    order = np.argsort(start_ns, kind="stable")
    sorted_ns = start_ns[order]
    tied = np.append(False, sorted_ns[1:] == sorted_ns[:-1])
    if tied.any():  # few are; the order of the others is known
        here = np.flatnonzero(tied | np.append(tied[1:], False))
        rows = order[here]
        order[here] = rows[np.lexsort((thread[rows], -end_ns[rows], sorted_ns[here]))]
    return Ranges(sorted_ns, end_ns[order], thread[order], name[order], order)
