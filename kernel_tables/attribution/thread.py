"""Which ranges are open on one thread."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.nesting import nesting
from kernel_tables.attribution.pieces import pieces_that_nest
from kernel_tables.attribution.ranges import NONE, Ranges


class Thread:
    """The ranges of one thread over time, as nodes: a node is a range, or a piece of one, in the chain around it."""

    def __init__(self, thread_id: int, numbers: np.ndarray, ranges: Ranges, next_node: int):
        """NUMBERS are the ranges of this thread, ascending; later pieces of a range are nodes from NEXT_NODE on."""
        self.thread_id = thread_id
        self.nodes, self.ranges = numbers, numbers  # the nodes in opening order, and the range of each
        self.ends_ns = ranges.end_ns[numbers]  # of each node: the first end of the ranges in its chain
        self.more_nodes = 0
        start_ns = ranges.start_ns[numbers]
        self.first_ns, self.last_ns = int(start_ns[0]), int(self.ends_ns.max())
        found = nesting(start_ns, self.ends_ns)
        if found is None:
            pieces = pieces_that_nest(start_ns, self.ends_ns)
            found = nesting(pieces.start_ns, pieces.end_ns)
            is_more = pieces.start_ns > start_ns[pieces.range]
            self.more_nodes = int(is_more.sum())
            self.ranges, self.ends_ns = numbers[pieces.range], pieces.end_ns
            self.nodes = self.ranges.copy()
            self.nodes[is_more] = next_node + np.arange(self.more_nodes)
        with_none = np.append(self.nodes, NONE)
        self.parents = with_none[found.parent]
        self._times_ns, self._innermost = found.times_ns, with_none.astype(np.int32)[found.innermost]

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost node open at each time, NONE where none is."""
        return self._innermost[np.searchsorted(self._times_ns, times_ns, "right") - 1]
