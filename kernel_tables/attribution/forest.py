"""Chains of ranges as a forest: which range is inside which, where the same range may occur in several chains."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution import arrays, limits
from kernel_tables.attribution.ranges import NONE


class ChainMembers(NamedTuple):
    """The ranges in the chains of queries: one entry per query and range, in no order."""

    query_index: np.ndarray
    range_index: np.ndarray


@dataclass(frozen=True)
class Attribution:
    """Every chain of open ranges that occurs, as a forest, and the chain of each launch.

    A node is a range with the chain of ranges around it; its parent is the node of that chain without the range.
    The first nodes are the ranges themselves, each in the chain in which it was opened.
    """

    parent: np.ndarray  # node -> node, or NONE
    range: np.ndarray  # node -> number of its innermost range
    launch_node: np.ndarray  # activity -> node at its launch, or NONE if no range is open or the launch is not known
    activity_node: np.ndarray  # the same, but below it the captured ranges of an activity of a replayed graph
    first_replayed: int  # nodes from here on are captured ranges, once per replay

    @cached_property
    def levels(self) -> list[np.ndarray]:
        """The nodes by depth: every parent is in the level before its children."""
        depth = self.totals((self.parent != NONE).astype(np.int64))
        deepest = int(depth.max(initial=0))
        limits.require_depth(deepest + 1)
        return [nodes.astype(np.int32) for nodes in arrays.positions_by_group(depth, deepest + 1)]

    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of `values` (a value per node) over each node and all nodes around it."""
        totals, above = values.copy(), self.parent.copy()
        inside = np.flatnonzero(above != NONE)
        while len(inside):  # each round doubles the reach, so the number of rounds is the number of bits of the depth
            reached = above[inside]
            totals[inside] += totals[reached]
            above[inside] = above[reached]
            inside = inside[above[inside] != NONE]
        return totals


def chain_members(parent: np.ndarray, innermost: np.ndarray, nodes: np.ndarray) -> ChainMembers:
    """The ranges in the chain of each of `nodes`, in a forest of these parents and innermost ranges.

    A query is a position in `nodes`.
    """
    query = np.flatnonzero(nodes != NONE)
    queries, chain = [query], [nodes[query]]
    while len(query):
        current = parent[chain[-1]]
        query, current = query[current != NONE], current[current != NONE]
        queries.append(query)
        chain.append(current)
    return ChainMembers(np.concatenate(queries), innermost[np.concatenate(chain)])


class Forest:
    """The nodes of an Attribution while they are made."""

    def __init__(self, range_count: int, parent: np.ndarray, innermost: np.ndarray):
        """Begins with nodes that have these parents and innermost ranges."""
        self._range_count = range_count
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

    def members(self, nodes: np.ndarray) -> ChainMembers:
        """The ranges in the chain of each of `nodes`; a query is a position in `nodes`."""
        return chain_members(self.parent, self.range, nodes)

    def add_chains(self, count: int, members: ChainMembers) -> np.ndarray:
        """Adds the chains of `count` queries, as a trie that is built level by level, and returns the node of each.

        A chain has its members in opening order. As far as the chains of two adjacent queries begin with the same
        members, they share nodes; so if queries are in order of time, few nodes are added twice.
        """
        keys = np.sort(members.query_index * self._range_count + members.range_index)
        range_index = keys % self._range_count
        length = np.bincount(keys // self._range_count, minlength=count)
        first = np.cumsum(length) - length
        nodes = np.full(count, NONE)
        differs = np.zeros(count, bool)  # whether the chain down to this level differs from that of the query before
        for level in range(length.max(initial=0)):
            rows = np.flatnonzero(length > level)
            innermost = range_index[first[rows] + level]
            differs[rows[0]] = True
            differs[rows[1:]] |= (np.diff(rows) > 1) | (innermost[1:] != innermost[:-1])
            is_new = differs[rows]
            self._parent.append(nodes[rows[is_new]])
            self._range.append(innermost[is_new])
            nodes[rows] = self._count - 1 + np.cumsum(is_new)
            self._count += int(is_new.sum())
        return nodes
