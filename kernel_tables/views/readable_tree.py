"""The tree of ranges in few rows: phases as siblings, and `(own)` for time outside of inner ranges."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.path_text import as_path, names_in
from kernel_tables.kernel_classes.categories import family
from kernel_tables.views.tables import range_tree

STEP, FORWARD, OWN, COMMUNICATION = "step", "forward", "(own)", "communication"
BACKWARD, OPTIMIZER = re.compile(r"(?i)backward"), re.compile(r"(?i)^optimizer")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#(.+)\.step")
JOINT = " + "  # in names of ranges, between parts of a compiled model; as in range_marks
NEXT_BATCH = "enumerate(DataLoader)"
UNIT = re.compile(r"(FSDP::\w+) (?:\(.*\)|for .*)")  # a range of FSDP2 for each of its units


@dataclass
class Node:
    """A range, with what was launched in it and in its inner ranges."""

    name: str
    times: int | None = 0  # None if it is not a range
    kernels: int = 0
    ns: int = 0
    memops: int = 0
    children: dict[str, "Node"] = field(default_factory=dict)

    def add(self, other: "Node", sign: int = 1) -> None:
        """Adds the sums of another node, or subtracts them (`sign` -1)."""
        self.kernels += sign * other.kernels
        self.ns += sign * other.ns
        self.memops += sign * other.memops

    def adopt(self, child: "Node") -> None:
        """Adds a child whose sums this node includes already; merges it into a child of the same name."""
        waiting = [(self, child)]
        while waiting:  # ranges may be a thousand deep
            node, child = waiting.pop()
            same_name = node.children.setdefault(child.name, child)
            if same_name is not child:
                same_name.add(child)
                if child.times is not None:
                    same_name.times = (same_name.times or 0) + child.times
                waiting += [(same_name, inner) for inner in child.children.values()]

    @property
    def is_empty(self) -> bool:
        return not (self.kernels or self.memops or self.ns)


class _TreeNode(NamedTuple):
    """A node and its position in the tree."""

    node: Node
    depth: int
    parent: Node | None


@dataclass(frozen=True)
class TreeRow:
    """A row of the tree: depth, label and sums. `others` is the number of ranges that it sums up, 0 for a range."""

    depth: int
    label: str
    node: Node
    others: int = 0


class RangeTree:
    """The ranges of a capture that launched something, as a tree."""

    def __init__(self, trace: CaptureArrays, under: str | None = None, process: int | None = None):
        self._root = Node("")
        chains = _nodes(trace, self._root, under, process)
        _move_communication(trace, chains, process)
        _shape(self._root)
        _complete(self._root)
        self._tree_nodes = _tree_nodes(self._root)

    def __len__(self) -> int:
        return len(self._tree_nodes) - 1

    def rows(self, most: int = 0) -> list[TreeRow]:
        """The rows, children below their parents, the longest first.

        With `most`, about so many: the phases and the longest ranges in them; the others are summed up in one row.
        """
        shown_ids = (
            _shown_ids(self._tree_nodes, most)
            if 0 < most < len(self)
            else {id(entry.node) for entry in self._tree_nodes}
        )
        rows, waiting = [], _inner_rows(self._root, shown_ids, 0)
        while waiting:
            rows.append(waiting.pop())
            waiting += _inner_rows(rows[-1].node, shown_ids, rows[-1].depth + 1)
        return rows


def _nodes(trace: CaptureArrays, root: Node, under: str | None, process: int | None) -> dict[str, list[Node]]:
    """By range path, the nodes from the outermost range to that range; all are put below `root`."""
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
    """Moves communication from the ranges that happened to start it to their phase."""
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
            node.add(part, -1)


def _shape(root: Node) -> None:
    """Makes forward, backward and optimizer siblings, whichever of them calls another."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        for optimizer in [child for child in node.children.values() if OPTIMIZER.match(child.name)]:
            if any(map(BACKWARD.search, optimizer.children)):  # a closure runs the model inside its optimizer
                for inner in optimizer.children.values():
                    optimizer.add(inner, -1)
                    node.adopt(inner)
                optimizer.children = {}
        models = [] if FORWARD in node.children else _models(node)
        if models:
            forward = node.children[FORWARD] = Node(FORWARD)
            for model in models:
                forward.add(model)
                forward.times += model.times or 0
                forward.children[model.name] = node.children.pop(model.name)
        waiting += node.children.values()


def _models(node: Node) -> list[Node]:
    """The children that are parts of a sibling backward pass, too: they are the forward passes of models."""
    passes = [child for child in node.children.values() if BACKWARD.search(child.name)]
    parts = {name for node in passes for name in node.children} - {COMMUNICATION} - {node.name for node in passes}
    return [child for name, child in node.children.items() if name in parts]


def _complete(root: Node) -> None:
    """Drops empty children, and adds the time outside of children as a child, so that children add up."""
    for entry in reversed(_tree_nodes(root)):
        node = entry.node
        node.children = {name: child for name, child in node.children.items() if not child.is_empty}
        own_node = Node(OWN, None, node.kernels, node.ns, node.memops)
        for child in node.children.values():
            own_node.add(child, -1)
        if node.children and node is not root and not own_node.is_empty:
            node.adopt(own_node)


def _shown_ids(tree_nodes: list[_TreeNode], most: int) -> set[int]:
    """The ids of about `most` nodes to show."""
    shown_ids = set()
    for entry in reversed(tree_nodes):
        is_phase = entry.parent is not None and entry.parent.name == STEP
        if entry.depth <= 1 or is_phase or id(entry.node) in shown_ids:
            shown_ids |= {id(entry.node), id(entry.parent)}
    for entry in sorted(tree_nodes, key=lambda entry: -entry.node.ns):
        if len(shown_ids) >= most:
            break
        if id(entry.parent) in shown_ids:
            shown_ids.add(id(entry.node))
    return shown_ids


def _tree_nodes(root: Node) -> list[_TreeNode]:
    """Every node, parents before their children."""
    tree_nodes = [_TreeNode(root, 0, None)]
    for entry in tree_nodes:
        tree_nodes += [_TreeNode(child, entry.depth + 1, entry.node) for child in entry.node.children.values()]
    return tree_nodes


def _inner_rows(node: Node, shown_ids: set[int], depth: int) -> list[TreeRow]:
    """The rows of a node's children, the shortest first; children not shown are one row, if any child is shown."""
    children = sorted(node.children.values(), key=lambda child: -child.ns)
    shown = [child for child in children if id(child) in shown_ids]
    others = [child for child in children if id(child) not in shown_ids]
    if shown and len(others) == 1:  # its own row takes no more room
        shown, others = children, []
    rows = [TreeRow(depth, readable(_label(child.name, node.name)), child) for child in shown]
    if rows and others:
        together = Node("", None)
        for child in others:
            together.add(child)
        rows.append(TreeRow(depth, f"({len(others)} smaller)", together, len(others)))
    return rows[::-1]


def readable(name: str) -> str:
    """The name of a range in words if PyTorch opens it; other names unchanged."""
    if name.startswith(NEXT_BATCH):
        return "next batch (DataLoader)"
    step = OPTIMIZER_STEP.fullmatch(name)
    return f"optimizer ({step[1]})" if step else name


def _label(name: str, outer: str) -> str:
    """The name without that of the outer module: `.mlp` for `layers.mlp` inside `layers`. Parts of a compiled model
    that share a kernel are shortened one by one: `.act + .up`."""
    parts = name.split(JOINT)
    return JOINT.join(part.removeprefix(outer) if outer and part.startswith(f"{outer}.") else part for part in parts)
