"""Chains of ranges as a forest: what contains what, where the same range may stand in several chains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.keys import grouped
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
        return grouped(depth, int(depth.max(initial=0)) + 1)

    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of VALUES (one per node) over each node and the nodes around it."""
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

    def __init__(self, parent: np.ndarray):
        """PARENT is the node around each range; the caller may overwrite it until the forest is finished."""
        self.parent = parent
        self._ranges = len(parent)
        self._count = len(parent)
        self._more_parents: list[np.ndarray] = []
        self._more_ranges: list[np.ndarray] = []

    def finished(self, launch_node: np.ndarray) -> Attribution:
        """The forest, with the node of each launch."""
        parent = np.concatenate([self.parent, *self._more_parents])
        innermost = np.concatenate([np.arange(self._ranges), *self._more_ranges])
        return Attribution(parent, innermost, launch_node)

    def chains(self, count: int, inherited: list[Members], own: Members | None = None) -> np.ndarray:
        """The node of the chain at each of COUNT places: the INHERITED ranges, then its OWN, both in opening order.

        Places come in order of time, where places with the same beginning of a chain stand side by side and share it.
        """
        first, length, number = self._in_order(count, inherited, own)
        nodes = np.full(count, NONE)
        differs = np.zeros(count, bool)  # whether the chain up to this level is another one than at the place before
        for level in range(length.max(initial=0)):
            here = np.flatnonzero(length > level)
            innermost = number[first[here] + level]
            differs[here[0]] = True
            differs[here[1:]] |= (np.diff(here) > 1) | (innermost[1:] != innermost[:-1])
            is_new = differs[here]
            self._more_parents.append(nodes[here[is_new]])
            self._more_ranges.append(innermost[is_new])
            nodes[here] = self._count - 1 + np.cumsum(is_new)
            self._count += int(is_new.sum())
        return nodes

    def _in_order(
        self, count: int, inherited: list[Members], own: Members | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(where the chain of each place begins, its length, the numbers of all chains one after the other)."""
        keys = [2 * place * self._ranges + number for place, number in inherited]
        if own:
            keys.append((2 * own[0] + 1) * self._ranges + own[1])
        keys = np.sort(np.concatenate(keys))
        length = np.bincount(keys // (2 * self._ranges), minlength=count)
        return np.cumsum(length) - length, length, keys % self._ranges
