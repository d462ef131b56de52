"""Chains of ranges as a forest: what contains what, where the same range may stand in several chains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.keys import grouped
from kernel_tables.attribution.limits import require_depth
from kernel_tables.attribution.ranges import NONE

Members = tuple[np.ndarray, np.ndarray]  # (place, number of a range): one entry per range of each place, in no order


@dataclass(frozen=True)
class Attribution:
    """Every chain of open ranges that occurs, as a forest, and the chain of each launch.

    A node is a range with the chain of ranges around it; its parent is the node of that chain without the range.
    The first nodes are the ranges themselves, each in the chain in which it was opened.
    """

    parent: np.ndarray  # node -> node, or NONE
    range: np.ndarray  # node -> number of its innermost range
    launch_node: np.ndarray  # launch -> node, or NONE where no range is open or the launch is not known

    def levels(self) -> list[np.ndarray]:
        """The nodes by their depth: every parent stands in the level before its children."""
        depth = self.totals((self.parent != NONE).astype(np.int64))
        deepest = int(depth.max(initial=0))
        require_depth(deepest + 1)
        return grouped(depth, deepest + 1)

    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of VALUES (one per node) over each node and all the nodes around it."""
        totals, above = values.copy(), self.parent.copy()
        inside = np.flatnonzero(above != NONE)
        while len(inside):  # each round doubles the reach, so there are as many as the depth has bits
            reached = above[inside]
            totals[inside] += totals[reached]
            above[inside] = above[reached]
            inside = inside[above[inside] != NONE]
        return totals


class Forest:
    """The nodes of an Attribution while they are made."""

    def __init__(self, ranges: int, parent: np.ndarray, innermost: np.ndarray):
        """Begins with nodes of this PARENT and INNERMOST range each; RANGES is the number of ranges."""
        self._ranges = ranges
        self._parent, self._range = [parent], [innermost]
        self._count = len(parent)

    @property
    def parent(self) -> np.ndarray:
        """The node around each node."""
        self._parent = [np.concatenate(self._parent)] if len(self._parent) > 1 else self._parent
        return self._parent[0]

    @property
    def range(self) -> np.ndarray:
        """The number of the innermost range of each node."""
        self._range = [np.concatenate(self._range)] if len(self._range) > 1 else self._range
        return self._range[0]

    def members(self, nodes: np.ndarray) -> Members:
        """The ranges in the chain of each of NODES; a place is a position in NODES."""
        parent = self.parent
        place = np.flatnonzero(nodes != NONE)
        current = nodes[place]
        places, chain = [place], [current]
        while len(place):
            current = parent[current]
            place, current = place[current != NONE], current[current != NONE]
            places.append(place)
            chain.append(current)
        return np.concatenate(places), self.range[np.concatenate(chain)]

    def chains(self, count: int, members: list[Members]) -> np.ndarray:
        """The node of a chain of all MEMBERS of a place in opening order, for each of COUNT places; new nodes.

        Places come in order of time, where places with the same beginning of a chain stand side by side and share it.
        """
        keys = np.sort(np.concatenate([place * self._ranges + number for place, number in members]))
        number = keys % self._ranges
        length = np.bincount(keys // self._ranges, minlength=count)
        first = np.cumsum(length) - length
        nodes = np.full(count, NONE)
        differs = np.zeros(count, bool)  # whether the chain up to this level is another one than at the place before
        for level in range(length.max(initial=0)):
            here = np.flatnonzero(length > level)
            innermost = number[first[here] + level]
            differs[here[0]] = True
            differs[here[1:]] |= (np.diff(here) > 1) | (innermost[1:] != innermost[:-1])
            is_new = differs[here]
            self._parent.append(nodes[here[is_new]])
            self._range.append(innermost[is_new])
            nodes[here] = self._count - 1 + np.cumsum(is_new)
            self._count += int(is_new.sum())
        return nodes
