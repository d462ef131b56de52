"""Paths of range names: chains of the attribution with the same names are one path, numbered."""

from functools import cached_property
from itertools import pairwise

import numpy as np

from kernel_tables.attribution import arrays, forest, limits, path_text, ranges

WINDOW = "measure"  # the range around what is measured, if the program opens one
NO_RANGE = 0  # the path of activities that were launched in no range
BEFORE_CAPTURE = 1  # the path of activities whose launch is not in the capture
BEFORE_CAPTURE_NAME = "(launched before the capture)"


class Paths:
    """Every path that occurs, numbered. A path consists of its parent and one more name."""

    def __init__(self, attribution: forest.Attribution, range_name: np.ndarray, names: list[str]):
        """`range_name` is the code of each range's name, `names` the names by code."""
        self.names = [*names, BEFORE_CAPTURE_NAME]
        node_name = range_name[attribution.range]
        node_path = np.zeros(len(node_name) + 1, np.int64)  # the last entry serves nodes without a parent
        # By level, the parent and the last name's code of each path. The first level is NO_RANGE and BEFORE_CAPTURE.
        parents, last_names, count = [[NO_RANGE, NO_RANGE]], [[ranges.NONE, len(names)]], 2
        names_on_paths = 0  # a measure of the time and memory that paths take
        for depth, nodes in enumerate(attribution.levels, start=1):
            key = node_path[attribution.parent[nodes]] * len(self.names) + node_name[nodes]
            distinct, index = arrays.factorize(key)
            node_path[nodes] = count + index
            parents.append(distinct // len(self.names))
            last_names.append(distinct % len(self.names))
            count += len(distinct)
            names_on_paths += depth * len(distinct)
            limits.require_pairs(names_on_paths, "names on the paths of ranges")
        self.of_node = node_path[:-1].astype(np.int32)
        self.parent = np.concatenate(parents).astype(np.int64)
        self.name = np.concatenate(last_names).astype(np.int64)  # code of the last name of each path, NONE for no range
        self._levels = [slice(*bounds) for bounds in pairwise(np.cumsum([len(level) for level in parents]).tolist())]
        name_characters = np.array(
            [len(path_text.escaped_name(name)) + len(path_text.PATH_SEPARATOR) for name in self.names], np.int64
        )
        self.characters = self._totals(np.append(name_characters, 0)[self.name])  # of each path as text
        limits.require_text(int(self.characters.sum()), limits.MAX_TABLE_CHARACTERS)

    def _totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of `values` (one per path) over each path and all paths around it."""
        sums = values.copy()
        for level in self._levels:
            sums[level] += sums[self.parent[level]]
        return sums

    @cached_property
    def depth(self) -> np.ndarray:
        """How many names each path has: 0 for no range."""
        return self._totals((self.name != ranges.NONE).astype(np.int64))

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def tuples(self) -> list[tuple[str, ...]]:
        """The names of each path, outermost first."""
        tuples: list[tuple[str, ...]] = [()]
        for parent, name in zip(self.parent[1:].tolist(), self.name[1:].tolist(), strict=True):
            tuples.append((*tuples[parent], self.names[name]))
        return tuples

    def code(self, name: str) -> int:
        """The code of a range's name, NONE if no range has it."""
        return self.names.index(name) if name in self.names else ranges.NONE

    def is_inside(self, name: str) -> np.ndarray:
        """Whether `name` is one of the names of each path."""
        return self.is_below((self.name == self.code(name)) & (self.name != ranges.NONE))

    def is_below(self, marked: np.ndarray) -> np.ndarray:
        """Whether each path is `marked`, or inside one that is."""
        return self._totals(marked.astype(np.int64)) > 0

    def names_in(self, paths: np.ndarray, under: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The distinct names on each of `paths`, only from its first range `under` inwards if that is given. Returns
        one entry per path and name: the position in `paths`, and the code of the name."""
        is_inside = self.is_inside(under) if under is not None else np.ones(len(self), bool)
        position, current, keys = np.arange(len(paths)), paths, []
        while len(position):
            is_kept = (current != NO_RANGE) & is_inside[current]
            position, current = position[is_kept], current[is_kept]
            keys.append(position * len(self.names) + self.name[current])
            current = self.parent[current]
        keys = np.unique(np.concatenate([*keys, np.empty(0, np.int64)]))
        return keys // len(self.names), keys % len(self.names)
