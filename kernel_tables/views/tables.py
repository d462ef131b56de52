"""The tables of a trace as pandas DataFrames; their columns are documented at the methods of Trace."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.attribution import limits, path_text
from kernel_tables.attribution.activities import COUNTS_AS_KERNEL, KINDS
from kernel_tables.attribution.arrays import factorize, map_blocks, sums_by_group
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.paths import NO_RANGE, Paths
from kernel_tables.columns import column_names
from kernel_tables.kernel_classes.categories import UNKNOWN

SUMS = ("instances", "kernels", "gpu_time_ns", "memops", "memop_time_ns")


def activities(trace: CaptureArrays) -> pd.DataFrame:
    gpu_activities = trace.gpu_activities
    class_names, class_code = np.unique(np.array(trace.activity_classes, object), return_inverse=True)
    return pd.DataFrame(
        {
            "kind": pd.Categorical.from_codes(gpu_activities.kind, KINDS),
            "name": _categorical(gpu_activities.name, gpu_activities.names),
            "class": pd.Categorical.from_codes(class_code.reshape(-1)[gpu_activities.name], class_names.astype(str)),
            "start_ns": gpu_activities.start_ns,
            "end_ns": gpu_activities.end_ns,
            "duration_ns": gpu_activities.duration_ns,
            "process": gpu_activities.process,
            "thread": gpu_activities.thread,
            "device": trace.places["device"].astype(np.int64),
            "stream": trace.places["stream"].astype(np.int64),
            "launch_ns": pd.arrays.IntegerArray(gpu_activities.launch_ns, mask=~gpu_activities.has_launch),
            "path_id": trace.activity_path.astype(np.int32),
        }
    )


def range_instances(trace: CaptureArrays) -> pd.DataFrame:
    range_arrays = trace.range_arrays
    return pd.DataFrame(
        {
            "instance": np.arange(len(range_arrays)),
            "name": _categorical(range_arrays.name, trace.range_names),
            "domain": _domains(trace),
            "process": range_arrays.process,
            "thread": range_arrays.thread,
            "start_ns": range_arrays.start_ns,
            "end_ns": range_arrays.end_ns,
            "path_id": trace.range_paths.of_node[: len(range_arrays)],
        }
    )


def ranges(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    if under is not None:
        trace.require_range(under)
    paths = trace.range_paths
    used_paths, direct_sums = _sums_by_path(trace, process)
    position, code = paths.names_in(used_paths, under)  # pairs of a used path and a name on it
    instances = paths.name[paths.of_node[range_instance_nodes(trace, under, process)]]
    table = pd.DataFrame({"range": paths.names, "instances": np.bincount(instances, minlength=len(paths.names))})
    for column, sums in direct_sums.items():
        table[column] = sums_by_group(code, sums[position], len(paths.names))
    table = table[(table["instances"] > 0) | (table["kernels"] > 0) | (table["memops"] > 0)]
    return _sorted(table, "gpu_time_ns", "range")


def range_tree(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    """Columns: range (the path), depth (0 for the outermost), then SUMS, which include inner ranges.

    Children are below their parents, those with the most time first. With `under`, only paths that have this name.
    """
    if under is not None:
        trace.require_range(under)
    paths, sums = trace.range_paths, {column: np.zeros(len(trace.range_paths), np.int64) for column in SUMS}
    sums["instances"] = np.bincount(paths.of_node[range_instance_nodes(trace, None, process)], minlength=len(paths))
    used_paths, direct_sums = _sums_by_path(trace, process)
    for column, values in direct_sums.items():
        sums[column][used_paths] = values
    depth = paths.depth
    for level in range(int(depth.max(initial=0)), 1, -1):
        level_paths = np.flatnonzero(depth == level)
        for column in direct_sums:  # instances are not added up
            np.add.at(sums[column], paths.parent[level_paths], sums[column][level_paths])
    is_shown = (sums["instances"] > 0) | (sums["kernels"] > 0) | (sums["memops"] > 0)
    is_shown &= paths.is_inside(under) if under is not None else True
    is_shown[NO_RANGE] = False
    shown = [path for path in _depth_first(paths, sums["gpu_time_ns"] + sums["memop_time_ns"]) if is_shown[path]]
    limits.require_text(int(paths.characters[shown].sum()), limits.MAX_TABLE_CHARACTERS)
    outermost = int(depth[shown].min(initial=depth.max(initial=0)))
    columns = {"range": [path_text.as_path(paths.tuples[path]) for path in shown], "depth": depth[shown] - outermost}
    return pd.DataFrame(columns | {column: sums[column][shown] for column in SUMS})


def kernels(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    gpu_activities, paths = trace.gpu_activities, trace.range_paths
    selected = _selection(trace, under, process)
    path, name = trace.activity_path[selected], gpu_activities.name[selected]
    name_count = max(len(gpu_activities.names), 1)
    dtype = np.int32 if len(paths) * name_count < 1 << 31 else np.int64  # half the memory takes less time
    key = map_blocks(lambda block: path[block].astype(dtype) * name_count + name[block], len(path), dtype)
    keys, group = factorize(key)
    del key
    statistics = _statistics(group, gpu_activities.duration_ns[selected])
    path_id, name_id = np.divmod(keys, name_count)
    trace.require_text(path_id, name_id, limits.MAX_TABLE_CHARACTERS)
    label = {path: path_text.as_path(paths.tuples[path]) for path in np.unique(path_id).tolist()}
    columns = {
        "range": [label[path] for path in path_id.tolist()],
        "kernel": [gpu_activities.names[code] for code in name_id.tolist()],
        "class": [trace.activity_classes[code] for code in name_id.tolist()],
    }
    return _sorted(pd.DataFrame(columns | statistics), "total_ns", "range", "kernel")


def classes(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    gpu_activities, selected = trace.gpu_activities, _selection(trace, under, process)
    name = gpu_activities.name[selected]
    total_ns = sums_by_group(name, gpu_activities.duration_ns[selected], len(gpu_activities.names))
    launches = np.bincount(name, minlength=len(gpu_activities.names))
    by_name = pd.DataFrame(
        {"class": trace.activity_classes, "kernel": gpu_activities.names, "launches": launches, "total_ns": total_ns}
    )
    by_name = by_name[by_name["launches"] > 0].astype({"class": "str", "kernel": "str"})
    by_name = _sorted(by_name, "total_ns", "kernel")
    table = by_name.groupby("class", as_index=False).agg(
        kernels=("kernel", "size"), launches=("launches", "sum"), total_ns=("total_ns", "sum"),
        largest_kernel=("kernel", "first"), unknown_names=("kernel", "; ".join),
    )  # fmt: skip
    table["unknown_names"] = table["unknown_names"].where(table["class"] == UNKNOWN, "")
    table["share_of_gpu_time"] = table["total_ns"] / max(table["total_ns"].sum(), 1)
    return _sorted(table[column_names("classes")], "total_ns", "class")


def _selection(trace: CaptureArrays, under: str | None, process: int | None) -> np.ndarray | slice:
    """A mask of the activities of a process inside an instance of `under`; a slice of all if both are None."""
    selected = slice(None) if process is None else trace.gpu_activities.process == process
    if under is None:
        return selected
    trace.require_range(under)
    inside = trace.range_paths.is_inside(under)[trace.activity_path]
    return inside if process is None else inside & selected


def _sums_by_path(trace: CaptureArrays, process: int | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The paths in which something was launched directly, and for each of these paths the SUMS (without instances) of
    what was."""
    gpu_activities, selected = trace.gpu_activities, _selection(trace, None, process)
    used_paths, path = factorize(trace.activity_path[selected])
    is_memop, kind, duration_ns = ~COUNTS_AS_KERNEL, gpu_activities.kind[selected], gpu_activities.duration_ns[selected]
    # Groups 2p and 2p + 1 are the kernels and the memory operations of path p; reshape(-1, 2) separates them.
    group = map_blocks(lambda block: 2 * path[block] + is_memop[kind[block]], len(path), np.int32)
    kernels, memops = np.bincount(group, minlength=2 * len(used_paths)).reshape(-1, 2).T
    gpu_time_ns, memop_time_ns = sums_by_group(group, duration_ns, 2 * len(used_paths)).reshape(-1, 2).T
    return used_paths, dict(zip(SUMS[1:], (kernels, gpu_time_ns, memops, memop_time_ns), strict=True))


def range_instance_nodes(trace: CaptureArrays, under: str | None, process: int | None) -> np.ndarray:
    """The nodes of the range instances; with `process`, of that process, and with `under`, inside a range so named."""
    nodes, paths = trace.instance_nodes, trace.range_paths
    if process is not None:
        nodes = nodes[trace.range_arrays.process[trace.attribution.range[nodes]] == process]
    return nodes if under is None else nodes[paths.is_inside(under)[paths.of_node[nodes]]]


def _statistics(group: np.ndarray, duration_ns: np.ndarray) -> dict[str, np.ndarray]:
    """By group: launches, total, mean, min, max and sample standard deviation (NaN for one launch). `group` numbers the
    groups from 0 without gaps."""
    functions = {
        "launches": "count", "total_ns": "sum", "mean_ns": "mean", "min_ns": "min", "max_ns": "max", "std_ns": "stddev",
    }  # fmt: skip
    options = {"stddev": pc.VarianceOptions(ddof=1)}
    aggregations = [("ns", function, options.get(function)) for function in functions.values()]
    table = pa.table({"group": group, "ns": duration_ns}).group_by("group").aggregate(aggregations).sort_by("group")
    return {column: table[f"ns_{function}"].to_numpy() for column, function in functions.items()}


def _depth_first(paths: Paths, time_ns: np.ndarray) -> list[int]:
    """The paths, children below their parents; siblings with the longest time first."""
    children: dict[int, list[int]] = {}
    for path in np.lexsort((np.arange(len(paths)), -time_ns)).tolist():
        if path != NO_RANGE:
            children.setdefault(int(paths.parent[path]), []).append(path)
    order, pending = [], children.get(NO_RANGE, [])[::-1]
    while pending:
        path = pending.pop()
        order.append(path)
        pending += children.get(path, [])[::-1]
    return order


def _domains(trace: CaptureArrays) -> pd.Categorical:
    """The name of the domain of each range instance, '' for the default domain."""
    range_arrays, names = trace.range_arrays, trace.capture.domains()  # names by process and domain
    pairs, code = np.unique(
        [range_arrays.process, trace.capture.range_domains()[range_arrays.row]], axis=1, return_inverse=True
    )
    return _categorical(code.reshape(-1), [names.get((process, domain), "") for process, domain in pairs.T.tolist()])


def _categorical(code: np.ndarray, labels: list[str]) -> pd.Categorical:
    """The labels of these codes. Labels may repeat, which categories may not."""
    distinct = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    renumbered = np.array([distinct[label] for label in labels], np.int32)
    return pd.Categorical.from_codes(renumbered[code] if len(code) else np.empty(0, np.int32), list(distinct))


def _sorted(table: pd.DataFrame, time_column: str, *names: str) -> pd.DataFrame:
    """The rows, the longest time first, then by name."""
    return table.sort_values([time_column, *names], ascending=[False, *[True] * len(names)], ignore_index=True)
