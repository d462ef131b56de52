"""The time of each kernel in a step within each range path: the data of the picture and the flame view."""

from collections.abc import Sequence

import numpy as np

from kernel_tables.attribution.arrays import factorize
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.step import Leaf
from kernel_tables.views.readable_tree import BACKWARD, COMMUNICATION, FORWARD, OPTIMIZER, readable

MOST_LEAVES = 3000
SMALLER = "(smaller ones)"


def step_leaves(scope: Scope) -> list[Leaf]:
    """The leaves of a step, the mean over steps and devices; without steps, of the complete capture."""
    activities, trace = scope.activities, scope.trace
    rows = np.flatnonzero(scope.step != NO_STEP) if len(scope.steps) else np.arange(len(activities))
    key = trace.activity_path[rows].astype(np.int64) * max(len(activities.names), 1) + activities.name[rows]
    group, of_group = factorize(key)
    ns, launches = np.zeros(len(group), np.int64), np.bincount(of_group, minlength=len(group))
    np.add.at(ns, of_group, activities.duration_ns[rows])
    paths, classes = with_phases(trace.range_paths.tuples, scope), trace.activity_classes
    count_of_names, leaves = len(activities.names), []
    for code, time, count in zip(group.tolist(), ns.tolist(), launches.tolist(), strict=True):
        path, name = paths[code // count_of_names], code % count_of_names
        ranges, ms = _part(path, classes[name]), time / 1e6 / scope.count
        leaves.append(Leaf(ranges, activities.names[name], classes[name], ms, count / scope.count))
    return leaves


def inside_step(path: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """The names of a path below the step; without steps, all names."""
    has_step = len(scope.steps) and scope.step_name in path
    return path[path.index(scope.step_name) + 1 :] if has_step else path


def _part(path: tuple[str, ...], kernel_class: str) -> tuple[str, ...]:
    """The path; for communication, that of its phase, since modules only happen to start it."""
    return (path[0], COMMUNICATION) if path and family(kernel_class) == COMMUNICATION else path


def with_phases(paths: Sequence[tuple[str, ...]], scope: Scope) -> list[tuple[str, ...]]:
    """The paths below the step, each beginning with its phase: as in views/readable_tree.py, the passes of a closure
    are siblings of their optimizer, and models that are parts of a backward pass are in the forward pass."""
    inner = [inside_step(path, scope) for path in paths]
    pairs = {path[:2] for path in inner if len(path) > 1}
    with_closure = {outer for outer, name in pairs if OPTIMIZER.match(outer) and BACKWARD.search(name)}
    inner = [path[1:] if len(path) > 1 and path[0] in with_closure else path for path in inner]
    models = {path[1] for path in inner if len(path) > 1 and BACKWARD.search(path[0])}
    if any(path[:1] == (FORWARD,) for path in inner):
        models = set()
    return [
        (FORWARD, *path) if path[:1] and path[0] in models else (*map(readable, path[:1]), *path[1:]) for path in inner
    ]


def within_room(leaves: list[Leaf]) -> tuple[list[Leaf], str]:
    """The leaves that fit into a flame view, the smallest of each phase as one leaf; and a sentence on these."""
    if len(leaves) <= MOST_LEAVES:
        return leaves, ""
    leaves = sorted(leaves, key=lambda leaf: -leaf.ms)
    rest: dict[str, list[Leaf]] = {}
    for leaf in leaves[MOST_LEAVES:]:
        rest.setdefault(leaf.ranges[0] if leaf.ranges else "", []).append(leaf)
    together = [
        Leaf(
            (phase,) if phase else (),
            SMALLER,
            "other",
            sum(leaf.ms for leaf in small),
            sum(leaf.launches for leaf in small),
        )
        for phase, small in rest.items()
    ]
    return leaves[:MOST_LEAVES] + together, (
        f"For want of room {len(leaves) - MOST_LEAVES:,} kernels in ranges, those with the least time, stand together"
        f" as “{SMALLER}”."
    )
