"""The tree of ranges as a person reads it: phases side by side, (own) where inner ranges do not add up, few rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernel_tables.attribution.path_text import as_path, names_in
from kernel_tables.kernel_classes.categories import family
from kernel_tables.views.tables import range_tree

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays

STEP, FORWARD, OWN, COMMUNICATION = "step", "forward", "(own)", "communication"
BACKWARD, OPTIMIZER = re.compile(r"(?i)backward"), re.compile(r"(?i)^optimizer")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#(.+)\.step")
NEXT_BATCH = "enumerate(DataLoader)"
UNIT = re.compile(r"(FSDP::\w+) \(.*\)")  # a range of FSDP2 for each of its units


@dataclass
class Node:
    """A range, with what was launched in it and in its inner ranges."""

    name: str
    times: int | None = 0  # None for what is no range
    kernels: int = 0
    ns: int = 0
    memops: int = 0
    children: dict[str, Node] = field(default_factory=dict)

    def take(self, other: Node, sign: int = 1) -> None:
        """Adds the sums of another node to this one's, or takes them away."""
        self.kernels += sign * other.kernels
        self.ns += sign * other.ns
        self.memops += sign * other.memops

    def adopt(self, child: Node) -> None:
        """Adds a child whose sums are in this node's already; one of the same name takes it up."""
        waiting = [(self, child)]
        while waiting:  # ranges may be a thousand deep
            node, child = waiting.pop()
            there = node.children.setdefault(child.name, child)
            if there is not child:
                there.take(child)
                there.times = (there.times or 0) + (child.times or 0)
                waiting += [(there, inner) for inner in child.children.values()]

    @property
    def is_empty(self) -> bool:
        return not (self.kernels or self.memops or self.ns)


class _Place(NamedTuple):
    """Where a node is."""

    node: Node
    depth: int
    parent: Node | None


@dataclass(frozen=True)
class TreeRow:
    """A row of the tree: how deep, its label, its sums; `others` where it stands for so many that are left out."""

    depth: int
    label: str
    node: Node
    others: int = 0


class RangeTree:
    """The ranges of a capture that launched something, inner ones in outer ones."""

    def __init__(self, trace: CaptureArrays, under: str | None = None, process: int | None = None):
        self._root = Node("")
        chains = _nodes(trace, self._root, under, process)
        _move_communication(trace, chains, process)
        _shape(self._root)
        _complete(self._root)
        self._places = _places(self._root)

    def __len__(self) -> int:
        return len(self._places) - 1

    def rows(self, most: int = 0) -> list[TreeRow]:
        """The rows, inner ones below outer ones, the longest first.

        With `most`, about so many: the phases, and of what lies in them the longest. Other inner ranges stand together.
        """
        kept = _kept(self._places, most) if 0 < most < len(self) else {id(place.node) for place in self._places}
        rows, waiting = [], _inner_rows(self._root, kept, 0)
        while waiting:
            rows.append(waiting.pop())
            waiting += _inner_rows(rows[-1].node, kept, rows[-1].depth + 1)
        return rows


def _nodes(trace: CaptureArrays, root: Node, under: str | None, process: int | None) -> dict[str, list[Node]]:
    """The nodes from the outermost to its own, by each range's path; all of them below `root`."""
    chains: dict[str, list[Node]] = {}
    current = [root]
    for row in range_tree(trace, under, process).itertuples(index=False):
        name = UNIT.sub(r"\1", names_in(row.range)[-1])
        node = Node(name, row.instances, row.kernels, row.gpu_time_ns + row.memop_time_ns, row.memops)
        del current[row.depth + 1 :]
        current[-1].adopt(node)
        current.append(current[-1].children[name])
        chains[row.range] = current[1:]
    return chains


def _move_communication(trace: CaptureArrays, chains: dict[str, list[Node]], process: int | None) -> None:
    """Takes communication out of the ranges that happened to start it: it is a part of their phase."""
    activities, paths = trace.gpu_activities, trace.range_paths
    of_name = np.array([family(name) == COMMUNICATION for name in trace.activity_classes], bool)
    is_communication = of_name[activities.name]
    if process is not None:
        is_communication &= activities.process == process
    path_of = trace.activity_path[is_communication]
    counts, ns = np.bincount(path_of, minlength=len(paths)), np.zeros(len(paths), np.int64)
    np.add.at(ns, path_of, activities.duration_ns[is_communication])
    for path in np.flatnonzero(counts).tolist():
        chain = chains.get(as_path(paths.tuples[path]))
        if chain is None:
            continue
        names = [node.name for node in chain]
        phase = min(names.index(STEP) + 1 if STEP in names else 0, len(chain) - 1)
        part = Node(COMMUNICATION, None, int(counts[path]), int(ns[path]))
        chain[phase].adopt(part)
        for node in chain[phase + 1 :]:
            node.take(part, -1)


def _shape(root: Node) -> None:
    """Makes forward, backward and optimizer siblings, whoever calls whom."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for optimizer in [child for child in node.children.values() if OPTIMIZER.match(child.name)]:
            if any(map(BACKWARD.search, optimizer.children)):  # a closure runs the model inside its optimizer
                for inner in optimizer.children.values():
                    optimizer.take(inner, -1)
                    node.adopt(inner)
                optimizer.children = {}
        models = [] if FORWARD in node.children else _models(node)
        if models:
            forward = node.children[FORWARD] = Node(FORWARD)
            for model in models:
                forward.take(model)
                forward.times += model.times or 0
                forward.children[model.name] = node.children.pop(model.name)
        waiting += node.children.values()


def _models(node: Node) -> list[Node]:
    """The children that a backward pass next to them has as its parts: the models whose forward pass they are."""
    passes = [child for child in node.children.values() if BACKWARD.search(child.name)]
    parts = {name for node in passes for name in node.children} - {COMMUNICATION} - {node.name for node in passes}
    return [child for name, child in node.children.items() if name in parts]


def _complete(root: Node) -> None:
    """Drops empty children, and adds what lies in none of the others as a child, so that children add up."""
    for place in reversed(_places(root)):
        node = place.node
        node.children = {name: child for name, child in node.children.items() if not child.is_empty}
        rest = Node(OWN, None, node.kernels, node.ns, node.memops)
        for child in node.children.values():
            rest.take(child, -1)
        if node.children and node is not root and not rest.is_empty:
            node.adopt(rest)


def _kept(places: list[_Place], most: int) -> set[int]:
    """The ids of the nodes that are shown."""
    kept = set()
    for place in reversed(places):
        is_phase = place.parent is not None and place.parent.name == STEP
        if place.depth <= 1 or is_phase or id(place.node) in kept:
            kept |= {id(place.node), id(place.parent)}
    for place in sorted(places, key=lambda place: -place.node.ns):
        if len(kept) >= most:
            break
        if id(place.parent) in kept:
            kept.add(id(place.node))
    return kept


def _places(root: Node) -> list[_Place]:
    """Every node with its depth and its parent, parents before their children."""
    places = [_Place(root, 0, None)]
    for place in places:
        places += [_Place(child, place.depth + 1, place.node) for child in place.node.children.values()]
    return places


def _inner_rows(node: Node, kept: set[int], depth: int) -> list[TreeRow]:
    """The rows of a node's children, the shortest first; those that are not kept as one, where others are."""
    children = sorted(node.children.values(), key=lambda child: -child.ns)
    shown = [child for child in children if id(child) in kept]
    others = [child for child in children if id(child) not in kept]
    if shown and len(others) == 1:  # a row for it takes no more room
        shown, others = children, []
    rows = [TreeRow(depth, readable(_label(child.name, node.name)), child) for child in shown]
    if rows and others:
        together = Node("", None)
        for child in others:
            together.take(child)
        rows.append(TreeRow(depth, f"({len(others)} smaller)", together, len(others)))
    return rows[::-1]


def readable(name: str) -> str:
    """The name of a range that PyTorch opens itself in words; all others as they are."""
    if name.startswith(NEXT_BATCH):
        return "next batch (DataLoader)"
    step = OPTIMIZER_STEP.fullmatch(name)
    return f"optimizer ({step[1]})" if step else name


def _label(name: str, outer: str) -> str:
    """The name; of a module inside a module, `.mlp` inside `layers` for `layers.mlp`."""
    return name.removeprefix(outer) if outer and name.startswith(f"{outer}.") else name
