"""The ranges as a tree: one row per path of names, with what was launched in it and in what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kernel_tables.attribution.activities import COUNTS_AS_KERNEL
from kernel_tables.attribution.limits import MOST_TEXT_OF_A_TABLE, require_text
from kernel_tables.attribution.path_text import as_path
from kernel_tables.attribution.paths import NO_RANGE, Paths
from kernel_tables.views.tables import of_process

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays

SUMS = ("instances", "kernels", "gpu_time_ns", "memops", "memop_time_ns")


def range_tree(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    """Columns range (the path), depth (0 for the outermost), then those of `ranges`, inclusive; children stand below
    their parents, those with the most GPU time first. Under a name: the paths in which it stands."""
    if under is not None:
        trace.require_range(under)
    paths, sums = trace.range_paths, _sums_by_path(trace, process)
    depth = _depths(paths)
    for level in range(int(depth.max(initial=0)), 1, -1):
        here = np.flatnonzero(depth == level)
        for name in SUMS[1:]:
            np.add.at(sums[name], paths.parent[here], sums[name][here])
    inside = paths.inside(under) if under is not None else np.ones(len(paths), bool)
    inside[NO_RANGE] = False
    inside &= (sums["instances"] > 0) | (sums["kernels"] > 0) | (sums["memops"] > 0)
    shown = [path for path in _in_order(paths, sums) if inside[path]]
    require_text(int(paths.text[shown].sum()), MOST_TEXT_OF_A_TABLE)
    first = min((int(depth[path]) for path in shown), default=0)
    head = {"range": [as_path(paths.tuples[path]) for path in shown], "depth": depth[shown] - first}
    return pd.DataFrame(head | {name: sums[name][shown] for name in SUMS})


def _sums_by_path(trace: CaptureArrays, process: int | None) -> dict[str, np.ndarray]:
    """Instances of every path, and what was launched directly in it; of one process, when given."""
    found, paths = trace.gpu_activities, trace.range_paths
    sums = {name: np.zeros(len(paths), np.int64) for name in SUMS}
    of_instances = paths.of_node[: len(trace.range_arrays)]
    np.add.at(sums["instances"], of_instances[of_process(trace.range_arrays, process)], 1)
    kept = of_process(found, process)
    path, duration_ns, is_kernel = (
        trace.activity_path[kept],
        found.duration_ns[kept],
        COUNTS_AS_KERNEL[found.kind[kept]],
    )
    for mask, count, time in ((is_kernel, "kernels", "gpu_time_ns"), (~is_kernel, "memops", "memop_time_ns")):
        np.add.at(sums[count], path[mask], 1)
        np.add.at(sums[time], path[mask], duration_ns[mask])
    return sums


def _depths(paths: Paths) -> np.ndarray:
    """How many names each path has: 1 for the outermost, 0 for no range."""
    depth = np.ones(len(paths), np.int64)
    depth[NO_RANGE] = 0
    current = paths.parent
    while current.any():
        depth += current != NO_RANGE
        current = paths.parent[current]
    return depth


def _in_order(paths: Paths, sums: dict[str, np.ndarray]) -> list[int]:
    """Paths with children below their parents, the longest GPU time first."""
    time = sums["gpu_time_ns"] + sums["memop_time_ns"]
    children: dict[int, list[int]] = {}
    for path in np.lexsort((np.arange(len(paths)), -time)).tolist():
        if path != NO_RANGE:
            children.setdefault(int(paths.parent[path]), []).append(path)
    order, waiting = [], children.get(NO_RANGE, [])[::-1]
    while waiting:
        path = waiting.pop()
        order.append(path)
        waiting += children.get(path, [])[::-1]
    return order
