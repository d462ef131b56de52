"""The tree of ranges in few rows: phases as siblings, and `(own)` for time outside of inner ranges."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernel_tables.classes import family
from kernel_tables.profile import Profile

COMMUNICATION = "communication"


@dataclass
class Node:
    """A range with sums of all that was launched in it and its inner ranges. Without a name, it is only such sums."""

    name: str = ""
    instances: int | None = None  # None if it is not a range
    kernels: int = 0
    ns: int = 0
    memops: int = 0
    children: dict[str, "Node"] = field(default_factory=dict)

    def add(self, other: "Node", sign: int = 1) -> None:
        """Adds the sums of another node, or subtracts them (`sign` -1)."""
        self.kernels += sign * other.kernels
        self.ns += sign * other.ns
        self.memops += sign * other.memops

    @property
    def is_empty(self) -> bool:
        return not (self.kernels or self.memops or self.ns)


class Row(NamedTuple):
    """A row of the tree: a range, or the sums of several ranges."""

    depth: int
    label: str
    node: Node
    range_count: int = 1


class RangeTree:
    """The ranges of a capture that launched something, as a tree; those inside `under`, those of a process."""

    def __init__(self, profile: Profile, under: str | None = None, process: int | None = None):
        self.root = Node()
        launched = self._launched(profile, under, process)
        for path, sums in zip(with_phases_as_siblings([path for path, _ in launched]), launched, strict=True):
            node, sums = self.root, sums[1]
            for name in path:
                node = node.children.setdefault(name, Node(name))
                node.add(sums)
            if sums.instances is not None:
                node.instances = (node.instances or 0) + sums.instances
        self._add_own_nodes()
        self.nodes = self._listed()

    def __len__(self) -> int:
        return len(self.nodes) - 1

    @staticmethod
    def _launched(profile: Profile, under: str | None, process: int | None) -> list[tuple[tuple[str, ...], Node]]:
        """The paths of ranges, each with a node of what was launched directly in it. Communication is in its phase, not
        in the range that happened to start it. With `under`, paths begin with that name."""
        if under is not None:
            profile.require_range(under)
        paths, group, opened = profile.attribution.paths, profile.grouped(process), profile.instance_paths
        opened = opened if process is None else opened[profile.instance_processes == process]
        instances = np.bincount(opened, minlength=len(paths)).tolist()
        is_collective = [family(name) == COMMUNICATION for name in profile.activity_classes]
        own, collectives = ([Node() for _ in range(len(paths))] for _ in range(2))
        columns = (group.path, group.name, group.is_memop, group.launches, group.total_ns)
        for path, name, is_memop, launches, ns in zip(*(column.tolist() for column in columns), strict=True):
            node = (collectives if is_collective[name] else own)[path]
            node.add(Node(kernels=0 if is_memop else launches, ns=ns, memops=launches if is_memop else 0))
        # FSDP2 opens a range for each of its units.
        short = {name: re.sub(r"^(FSDP::\w+) (?:\(.*\)|for .*)$", r"\1", name) for name in paths.names}
        ranges, communication = [], []
        for path, names in enumerate(paths.tuples):
            if names and (under is None or under in names):
                names = tuple(short[name] for name in names[names.index(under) if under else 0 :])
                own[path].instances = instances[path]
                if instances[path] or not (own[path].is_empty and collectives[path].is_empty):
                    ranges.append((names, own[path]))
                if not collectives[path].is_empty:
                    phase = min(names.index("step") + 1 if "step" in names else 0, len(names) - 1)
                    communication.append(((*names[: phase + 1], COMMUNICATION), collectives[path]))
        return ranges + communication

    def _add_own_nodes(self) -> None:
        """Drops empty children, and adds the time outside of children as a child, so that children add up."""
        for node, *_ in reversed(self._listed()):
            if node.name == "forward" and node.instances is None:  # added by with_phases_as_siblings around models
                node.instances = sum(child.instances or 0 for child in node.children.values())
            node.children = {name: child for name, child in node.children.items() if not child.is_empty}
            own = Node("(own)", None, node.kernels, node.ns, node.memops)
            for child in node.children.values():
                own.add(child, -1)
            if node.children and node is not self.root and not own.is_empty:
                node.children.setdefault(own.name, Node(own.name)).add(own)

    def _listed(self) -> list[tuple[Node, int, Node | None]]:
        """Every node with its depth and the node around it, outer nodes first."""
        listed = [(self.root, 0, None)]
        for node, depth, _ in listed:
            listed += [(child, depth + 1, node) for child in node.children.values()]
        return listed

    def rows(self, limit: int = 0) -> list[Row]:
        """The rows, children below their parents, the longest first.

        With a `limit`, about that number: the phases, and the longest ranges in them. All other children of a range are
        in one row.
        """
        shown = self._shown(limit) if 0 < limit < len(self) else {id(node) for node, *_ in self.nodes}
        rows, waiting = [], self._inner_rows(self.root, shown, 0)
        while waiting:
            rows.append(waiting.pop())
            waiting += self._inner_rows(rows[-1].node, shown, rows[-1].depth + 1)
        return rows

    def _shown(self, limit: int) -> set[int]:
        """The ids of about `limit` nodes to show: the outermost, the phases with all around them, then the longest."""
        shown = set()
        for node, depth, outer in reversed(self.nodes):  # inner nodes first, so that those around them are added, too
            if depth <= 1 or outer.name == "step" or id(node) in shown:
                shown |= {id(node), id(outer)}
        for node, _, outer in sorted(self.nodes, key=lambda entry: -entry[0].ns):
            if len(shown) >= limit:
                break
            if id(outer) in shown:  # an outer node is never shorter, so it comes first
                shown.add(id(node))
        return shown

    @staticmethod
    def _inner_rows(node: Node, shown_ids: set[int], depth: int) -> list[Row]:
        """The rows of a node's children, the shortest first. Children that are not shown are one row, but only next to
        children that are shown."""
        children = sorted(node.children.values(), key=lambda child: -child.ns)
        shown = [child for child in children if id(child) in shown_ids]
        others = [child for child in children if id(child) not in shown_ids]
        if shown and len(others) == 1:  # its own row takes no more room
            shown, others = children, []
        rows = [Row(depth, _label(child.name, node.name), child) for child in shown]
        if rows and others:
            sums = Node()
            for child in others:
                sums.add(child)
            rows.append(Row(depth, f"({len(others)} smaller)", sums, len(others)))
        return rows[::-1]


def _label(name: str, outer: str) -> str:
    """The name without that of the outer module: `.mlp` for `layers.mlp` inside `layers`. Parts of a compiled model
    that share a kernel are shortened one by one: `.act + .up`."""
    parts = name.split(" + ")
    short = [part.removeprefix(outer) if outer and part.startswith(f"{outer}.") else part for part in parts]
    return readable_name(" + ".join(short))


def readable_name(name: str) -> str:
    """The name of a range in words if PyTorch opens it; other names unchanged."""
    if name.startswith("enumerate(DataLoader)"):
        return "next batch (DataLoader)"
    step = re.fullmatch(r"Optimizer\.step#(.+)\.step", name)
    return f"optimizer ({step[1]})" if step else name


def with_phases_as_siblings(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The paths, changed so that forward, backward and optimizer are siblings, whichever of them calls another."""
    backward, optimizer = re.compile(r"(?i)backward").search, re.compile(r"(?i)^optimizer").match
    changed, waiting = list(paths), [(0, range(len(paths)))]
    while waiting:
        depth, group = waiting.pop()  # rows of paths whose first `depth` names are the same
        group = [row for row in group if len(changed[row]) > depth]
        pairs = {changed[row][depth : depth + 2] for row in group if len(changed[row]) >= depth + 2}
        # A closure runs the model inside its optimizer: the optimizer's name is removed around what is in it.
        closures = {outer for outer, inner in pairs if optimizer(outer) and backward(inner)}
        for row in group:
            if changed[row][depth] in closures and len(changed[row]) > depth + 1:
                changed[row] = changed[row][:depth] + changed[row][depth + 1 :]
        # A range whose name occurs both inside a backward pass and next to it is a model; next to it, it is the forward
        # pass of the model, and gets a range "forward" around it.
        pairs = {changed[row][depth : depth + 2] for row in group if len(changed[row]) >= depth + 2}
        names = {changed[row][depth] for row in group}
        passes = {name for name in names if backward(name)}
        models = {inner for outer, inner in pairs if outer in passes} - {COMMUNICATION} - passes
        by_name: dict[str, list[int]] = {}
        for row in group:
            if "forward" not in names and changed[row][depth] in models:
                changed[row] = (*changed[row][:depth], "forward", *changed[row][depth:])
            by_name.setdefault(changed[row][depth], []).append(row)
        waiting += [(depth + 1, rows) for rows in by_name.values()]
    return changed
