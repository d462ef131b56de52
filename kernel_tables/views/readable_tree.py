"""The tree of ranges in few rows: phases as siblings, and `(own)` for time outside of inner ranges."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.activities import COUNTS_AS_KERNEL
from kernel_tables.attribution.arrays import sums_by_group
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.kernel_classes.categories import family
from kernel_tables.views.tables import range_instance_nodes

STEP, FORWARD, OWN, COMMUNICATION = "step", "forward", "(own)", "communication"
BACKWARD, OPTIMIZER = re.compile(r"(?i)backward"), re.compile(r"(?i)^optimizer")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#(.+)\.step")
JOINT = " + "  # in names of ranges, between parts of a compiled model; as in range_marks
NEXT_BATCH = "enumerate(DataLoader)"
FSDP_UNIT = re.compile(r"(FSDP::\w+) (?:\(.*\)|for .*)")  # a range of FSDP2 for each of its units

RangePath = tuple[str, ...]


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


class _TreeNode(NamedTuple):
    """A node and its position in the tree."""

    node: Node
    depth: int
    parent: Node | None


@dataclass(frozen=True)
class TreeRow:
    """A row of the tree: a range, or the sums of several ranges."""

    depth: int
    label: str
    node: Node
    range_count: int = 1


class RangeTree:
    """The ranges of a capture that launched something, as a tree."""

    def __init__(self, trace: CaptureArrays, under: str | None = None, process: int | None = None):
        self._root = Node()
        launched = _launched(trace, under, process)
        paths = with_phases_as_siblings([path for path, _ in launched])
        for path, (_, sums) in zip(paths, launched, strict=True):
            node = self._root
            for name in path:
                node = node.children.setdefault(name, Node(name))
                node.add(sums)
            if sums.instances is not None:
                node.instances = (node.instances or 0) + sums.instances
        _add_own_nodes(self._root)
        self._tree_nodes = _tree_nodes(self._root)

    def __len__(self) -> int:
        return len(self._tree_nodes) - 1

    def rows(self, limit: int = 0) -> list[TreeRow]:
        """The rows, children below their parents, the longest first.

        With a `limit`, about that number: the phases, and the longest ranges in them. All other children of a range are
        in one row.
        """
        shown_ids = {id(entry.node) for entry in self._tree_nodes}
        if 0 < limit < len(self):
            shown_ids = _shown_ids(self._tree_nodes, limit)
        rows, waiting = [], _inner_rows(self._root, shown_ids, 0)
        while waiting:
            rows.append(waiting.pop())
            waiting += _inner_rows(rows[-1].node, shown_ids, rows[-1].depth + 1)
        return rows


def _launched(trace: CaptureArrays, under: str | None, process: int | None) -> list[tuple[RangePath, Node]]:
    """The paths of ranges, each with a node of what was launched directly in it. Communication is in its phase, not in
    the range that happened to start it. With `under`, paths begin with that name."""
    if under is not None:
        trace.require_range(under)
    activities, paths = trace.gpu_activities, trace.range_paths
    selected = slice(None) if process is None else activities.process == process
    is_communication = np.array([family(name) == COMMUNICATION for name in trace.activity_classes], bool)
    # Keys 2p and 2p + 1 are the work of path p without communication, and its communication.
    key = 2 * trace.activity_path[selected].astype(np.int32) + is_communication[activities.name[selected]]
    is_kernel = COUNTS_AS_KERNEL[activities.kind[selected]]
    kernels, memops = (np.bincount(key[mask], minlength=2 * len(paths)) for mask in (is_kernel, ~is_kernel))
    ns = sums_by_group(key, activities.duration_ns[selected], 2 * len(paths))
    sums = np.stack([kernels, ns, memops], axis=-1).reshape(-1, 2, 3).tolist()  # by path and the two, as in Node
    instances = np.bincount(paths.of_node[range_instance_nodes(trace, None, process)], minlength=len(paths)).tolist()
    short_names = {name: FSDP_UNIT.sub(r"\1", name) for name in paths.names}
    ranges, communication = [], []
    for path, names in enumerate(paths.tuples):
        is_wanted = under in names if under is not None else bool(names)
        if is_wanted:
            names = tuple(short_names[name] for name in names[names.index(under) if under else 0 :])
            own_sums, collective_sums = sums[path]
            own, collectives = Node("", instances[path], *own_sums), Node("", None, *collective_sums)
            if instances[path] or not (own.is_empty and collectives.is_empty):
                ranges.append((names, own))
            if not collectives.is_empty:
                phase = min(names.index(STEP) + 1 if STEP in names else 0, len(names) - 1)
                communication.append(((*names[: phase + 1], COMMUNICATION), collectives))
    return ranges + communication


def with_phases_as_siblings(paths: Sequence[RangePath]) -> list[RangePath]:
    """The paths, changed so that forward, backward and optimizer are siblings, whichever of them calls another."""
    changed, waiting = list(paths), [(0, range(len(paths)))]
    while waiting:
        depth, group = waiting.pop()  # indices of paths whose first `depth` names are the same
        group = [index for index in group if len(changed[index]) > depth]
        # A closure runs the model inside its optimizer: the optimizer's name is removed around what is in it.
        with_closure = {
            outer
            for outer, inner in _pairs_at(depth, changed, group)
            if OPTIMIZER.match(outer) and BACKWARD.search(inner)
        }
        for index in group:
            if changed[index][depth] in with_closure and len(changed[index]) > depth + 1:
                changed[index] = changed[index][:depth] + changed[index][depth + 1 :]
        # A range whose name occurs both inside a backward pass and next to it is a model; next to it, it is the forward
        # pass of the model, and gets a range FORWARD around it.
        names = {changed[index][depth] for index in group}
        passes = {name for name in names if BACKWARD.search(name)}
        models = (
            {inner for outer, inner in _pairs_at(depth, changed, group) if outer in passes} - {COMMUNICATION} - passes
        )
        by_name: dict[str, list[int]] = {}
        for index in group:
            if FORWARD not in names and changed[index][depth] in models:
                changed[index] = (*changed[index][:depth], FORWARD, *changed[index][depth:])
            by_name.setdefault(changed[index][depth], []).append(index)
        waiting += [(depth + 1, inner_group) for inner_group in by_name.values()]
    return changed


def _pairs_at(depth: int, paths: Sequence[RangePath], indices: Sequence[int]) -> set[RangePath]:
    """The names at this depth and the next of those of the paths that are long enough."""
    return {paths[index][depth : depth + 2] for index in indices if len(paths[index]) >= depth + 2}


def _add_own_nodes(root: Node) -> None:
    """Drops empty children, and adds the time outside of children as a child, so that children add up."""
    for entry in reversed(_tree_nodes(root)):
        node = entry.node
        if node.name == FORWARD and node.instances is None:  # added by with_phases_as_siblings around models
            node.instances = sum(child.instances or 0 for child in node.children.values())
        node.children = {name: child for name, child in node.children.items() if not child.is_empty}
        own_node = Node(OWN, None, node.kernels, node.ns, node.memops)
        for child in node.children.values():
            own_node.add(child, -1)
        if node.children and node is not root and not own_node.is_empty:
            node.children.setdefault(OWN, Node(OWN)).add(own_node)


def _shown_ids(tree_nodes: list[_TreeNode], limit: int) -> set[int]:
    """The ids of about `limit` nodes to show: the outermost, the phases with all around them, then the longest."""
    shown_ids = set()
    for entry in reversed(tree_nodes):  # inner nodes first, so that those around them are added, too
        is_phase = entry.parent is not None and entry.parent.name == STEP
        if entry.depth <= 1 or is_phase or id(entry.node) in shown_ids:
            shown_ids |= {id(entry.node), id(entry.parent)}
    for entry in sorted(tree_nodes, key=lambda entry: -entry.node.ns):
        if len(shown_ids) >= limit:
            break
        if id(entry.parent) in shown_ids:  # a parent is never shorter, so it comes first
            shown_ids.add(id(entry.node))
    return shown_ids


def _tree_nodes(root: Node) -> list[_TreeNode]:
    """Every node, parents before their children."""
    tree_nodes = [_TreeNode(root, 0, None)]
    for entry in tree_nodes:
        tree_nodes += [_TreeNode(child, entry.depth + 1, entry.node) for child in entry.node.children.values()]
    return tree_nodes


def _inner_rows(node: Node, shown_ids: set[int], depth: int) -> list[TreeRow]:
    """The rows of a node's children, the shortest first. Children that are not shown are one row, but only next to
    children that are shown."""
    children = sorted(node.children.values(), key=lambda child: -child.ns)
    shown = [child for child in children if id(child) in shown_ids]
    others = [child for child in children if id(child) not in shown_ids]
    if shown and len(others) == 1:  # its own row takes no more room
        shown, others = children, []
    rows = [TreeRow(depth, readable_name(_label(child.name, node.name)), child) for child in shown]
    if rows and others:
        sums = Node()
        for child in others:
            sums.add(child)
        rows.append(TreeRow(depth, f"({len(others)} smaller)", sums, range_count=len(others)))
    return rows[::-1]


def readable_name(name: str) -> str:
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
