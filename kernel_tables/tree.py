"""The tree of ranges: phases as siblings, and `(own)` for time outside of inner ranges."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernel_tables.classes import family
from kernel_tables.profile import Profile
from kernel_tables.tables import instance_paths, is_inside

COMMUNICATION = "communication"


@dataclass
class Node:
    """A range, with sums of all that was launched in it and its inner ranges."""

    label: str = ""
    depth: int = -1  # 0 for the outermost ranges
    instances: int | None = None  # None if it is not a range
    kernels: float = 0
    total_ns: int = 0
    memops: int = 0
    children: dict[str | None, "Node"] = field(default_factory=dict)

    def add(self, other: "Node") -> None:
        self.kernels += other.kernels
        self.total_ns += other.total_ns
        self.memops += other.memops


def tree_of(launched: Iterable[tuple[tuple[str, ...], Node]]) -> list[Node]:
    """The ranges of what was launched directly in each path, inner ones below outer ones, the longest first. Time
    outside of inner ranges is a node "(own)", so that the nodes below one add up to it."""
    root = Node()
    for path, sums in launched:
        node = root
        for depth, name in enumerate(path):
            node = node.children.setdefault(name, Node(_label(name, path[depth - 1] if depth else ""), depth))
            node.add(sums)
        node.children.setdefault(None, Node("(own)", len(path))).add(sums)
        if sums.instances is not None:
            node.instances = (node.instances or 0) + sums.instances
    listed, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        listed.append(node)
        if node.label == "forward" and node.instances is None:  # added by with_phases_as_siblings around models
            node.instances = sum(child.instances or 0 for child in node.children.values())
        children = node.children.items()
        children = {name: child for name, child in children if child.kernels or child.memops or child.total_ns}
        if children.keys() - {None}:
            own = children.get(None)
            waiting += sorted(children.values(), key=lambda child: (-child.total_ns, child is own))[::-1]
    return listed[1:]


def longest(nodes: Sequence[Node], count: int) -> list[Node]:
    """The `count` nodes with the most time (0: all) in their order. Nodes around them are never shorter."""
    rows = sorted(range(len(nodes)), key=lambda row: -nodes[row].total_ns)[: count or None]
    return [nodes[row] for row in sorted(rows)]


def range_tree(profile: Profile, under: str | None = None, process: int | None = None) -> list[Node]:
    """The ranges that launched something (inside `under`, of a process): see tree_of. Communication is in its phase,
    not in the range that happened to start it."""
    paths, group, is_counted = profile.attribution.paths, profile.grouped(process), is_inside(profile, under)
    is_collective = [family(name) == COMMUNICATION for name in profile.activity_classes]
    # FSDP2 opens a range for each of its units.
    short = {name: re.sub(r"^(FSDP::\w+) (?:\(.*\)|for .*)$", r"\1", name) for name in paths.names}
    sums: dict[tuple[str, ...], Node] = defaultdict(Node)  # of what was launched directly in each path
    inside: dict[int, tuple[str, ...]] = {}
    instances = np.bincount(instance_paths(profile, process), minlength=len(paths)).tolist()
    for path, names in enumerate(paths.tuples):
        if names and is_counted[path]:
            inside[path] = names = tuple(short[name] for name in names[names.index(under) if under else 0 :])
            sums[names].instances = (sums[names].instances or 0) + instances[path]
    columns = (group.path, group.name, group.is_memop, group.launches, group.total_ns)
    for path, name, is_memop, launches, ns in zip(*(column.tolist() for column in columns), strict=True):
        if names := inside.get(path):
            if is_collective[name]:
                phase = min(names.index("step") + 1 if "step" in names else 0, len(names) - 1)
                names = (*names[: phase + 1], COMMUNICATION)
            sums[names].add(Node(kernels=0 if is_memop else launches, total_ns=ns, memops=launches if is_memop else 0))
    return tree_of(zip(with_phases_as_siblings(list(sums)), sums.values(), strict=True))


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
