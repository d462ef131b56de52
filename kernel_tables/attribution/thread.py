"""Which ranges are open on one thread."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.nesting import nesting
from kernel_tables.attribution.pieces import Pieces, pieces_that_nest
from kernel_tables.attribution.ranges import NONE, Ranges


class Thread:
    """The ranges of one thread over time, as nodes: a node is a range, or a piece of one, in the chain around it."""

    def __init__(self, thread_id: int, numbers: np.ndarray, ranges: Ranges, next_node: int):
        """NUMBERS are the ranges of this thread, ascending; later pieces of a range are nodes from NEXT_NODE on."""
        start_ns, end_ns = ranges.start_ns[numbers], ranges.end_ns[numbers]
        pieces = Pieces(np.arange(len(numbers)), start_ns, end_ns)
        found = nesting(start_ns, end_ns)
        if found is None:
            pieces = pieces_that_nest(start_ns, end_ns)
            found = nesting(pieces.start_ns, pieces.end_ns)
        is_more = pieces.start_ns > start_ns[pieces.range]
        nodes = numbers[pieces.range]
        nodes[is_more] = next_node + np.arange(np.count_nonzero(is_more))
        self.thread_id = thread_id
        self.nodes = nodes
        self.ranges = numbers[pieces.range]  # the range of each node
        self.parents = np.append(nodes, NONE)[found.parent]
        self.ends_ns = pieces.end_ns  # of each node: the first end of the ranges in its chain
        self.more_nodes = int(is_more.sum())
        self._times_ns, self._innermost = found.times_ns, np.append(nodes, NONE).astype(np.int32)[found.innermost]

    def at(self, times_ns: np.ndarray) -> np.ndarray:
        """The innermost node open at each time, NONE where none is."""
        return self._innermost[np.searchsorted(self._times_ns, times_ns, "right") - 1]
