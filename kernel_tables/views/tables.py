"""The tables of a trace as pandas DataFrames; what their columns mean stands at the methods of Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kernel_tables.attribution.activities import COUNTS_AS_KERNEL, KINDS, Activities
from kernel_tables.attribution.arrays import blocks, factorize, map_blocks
from kernel_tables.attribution.limits import MOST_TEXT_OF_A_TABLE
from kernel_tables.attribution.path_text import as_path
from kernel_tables.attribution.ranges import Ranges
from kernel_tables.kernel_classes.categories import UNKNOWN

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays


def activities(trace: CaptureArrays) -> pd.DataFrame:
    found = trace.gpu_activities
    class_names, class_of_name = np.unique(np.array(trace.activity_classes, object), return_inverse=True)
    launch_ns = pd.arrays.IntegerArray(found.launch_ns, mask=~found.launched)
    return pd.DataFrame(
        {
            "kind": pd.Categorical.from_codes(found.kind, KINDS),
            "name": _categorical(found.name, found.names),
            "class": pd.Categorical.from_codes(class_of_name.reshape(-1)[found.name], class_names.astype(str)),
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
            "duration_ns": found.duration_ns,
            "process": found.process,
            "thread": found.thread,
            "device": trace.places["device"],
            "stream": trace.places["stream"],
            "launch_ns": launch_ns,
            "path_id": trace.activity_path,
        }
    )


def range_instances(trace: CaptureArrays) -> pd.DataFrame:
    found, (_, names) = trace.range_arrays, trace.range_names
    return pd.DataFrame(
        {
            "instance": np.arange(len(found)),
            "name": _categorical(found.name, names),
            "domain": _domains(trace),
            "process": found.process,
            "thread": found.thread,
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
            "path_id": trace.range_paths.of_node[: len(found)],
        }
    )


def ranges(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    if under is not None:
        trace.require_range(under)
    found, paths = trace.gpu_activities, trace.range_paths
    kept = of_process(found, process)
    used, path = factorize(trace.activity_path[kept])
    is_memop, kind = ~COUNTS_AS_KERNEL, found.kind[kept]
    group = map_blocks(lambda block: 2 * path[block] + is_memop[kind[block]], len(path), np.int32)
    counts, times_ns = _counts_and_sums(group, found.duration_ns[kept], 2 * len(used))
    place, code = paths.names_in(used, under)
    table = pd.DataFrame({"range": paths.names, "instances": _instances(trace, under, process)})
    for first, count_column, time_column in ((0, "kernels", "gpu_time_ns"), (1, "memops", "memop_time_ns")):
        table[count_column] = _sums(code, counts[first::2][place], len(paths.names))
        table[time_column] = _sums(code, times_ns[first::2][place], len(paths.names))
    table = table[(table["instances"] > 0) | (table["kernels"] > 0) | (table["memops"] > 0)]
    return _sorted(table, "gpu_time_ns", "range")


def kernels(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    found, paths = trace.gpu_activities, trace.range_paths
    kept = _kept(trace, under, process)
    path, name_of = trace.activity_path[kept], found.name[kept]
    names = max(len(found.names), 1)
    dtype = np.int32 if len(paths) * names < 1 << 31 else np.int64  # memory that is not touched takes no time
    key = map_blocks(lambda block: path[block] * dtype(names) + name_of[block], len(path), dtype)
    group, group_of = factorize(key)
    del key
    stats = _statistics(group_of, found.duration_ns[kept], len(group))
    path_id, name = group // names, group % names
    trace.require_text(path_id, name, MOST_TEXT_OF_A_TABLE)
    used = np.unique(path_id)
    label = dict(zip(used.tolist(), [as_path(paths.tuples[path]) for path in used.tolist()], strict=True))
    head = {
        "range": [label[path] for path in path_id.tolist()],
        "kernel": [found.names[code] for code in name.tolist()],
        "class": [trace.activity_classes[code] for code in name.tolist()],
    }
    return _sorted(pd.DataFrame(head | stats), "total_ns", "range", "kernel")


def classes(trace: CaptureArrays, under: str | None, process: int | None = None) -> pd.DataFrame:
    found = trace.gpu_activities
    kept = _kept(trace, under, process)
    launches, total_ns = _counts_and_sums(found.name[kept], found.duration_ns[kept], len(found.names))
    by_name = pd.DataFrame(
        {"class": trace.activity_classes, "kernel": found.names, "launches": launches, "total_ns": total_ns}
    )
    by_name = _sorted(by_name[by_name["launches"] > 0], "total_ns", "kernel")
    rows = [_class_row(name, of_class, by_name["total_ns"].sum()) for name, of_class in by_name.groupby("class")]
    columns = ["class", "kernels", "launches", "total_ns", "share_of_gpu_time", "largest_kernel", "unknown_names"]
    return _sorted(pd.DataFrame(rows, columns=columns), "total_ns", "class")


def _class_row(name: str, of_class: pd.DataFrame, all_ns: int) -> tuple:
    """One row of the classes table, from the class's kernels by falling time."""
    names = of_class["kernel"].tolist()
    launches, total_ns = int(of_class["launches"].sum()), int(of_class["total_ns"].sum())
    share = total_ns / all_ns if all_ns else 0.0
    return name, len(names), launches, total_ns, share, names[0], "; ".join(names) if name == UNKNOWN else ""


def of_process(found: Activities | Ranges, process: int | None) -> np.ndarray | slice:
    """Which of the activities, or of the ranges, are of this process; all of them without one."""
    return slice(None) if process is None else found.process == process


def _kept(trace: CaptureArrays, under: str | None, process: int | None) -> np.ndarray | slice:
    """Which activities of a process lie in an instance of UNDER; all of them without both."""
    of_its = of_process(trace.gpu_activities, process)
    if under is None:
        return of_its
    trace.require_range(under)
    inside = trace.range_paths.inside(under)[trace.activity_path]
    return inside if process is None else inside & of_its


def _instances(trace: CaptureArrays, under: str | None, process: int | None) -> np.ndarray:
    """The number of instances by code of name; of those inside an instance of UNDER, and of one process, when given."""
    found, paths = trace.range_arrays, trace.range_paths
    kept = of_process(found, process)
    if under is not None:
        inside = paths.inside(under)[paths.of_node[: len(found)]]
        kept = inside if process is None else inside & kept
    return np.bincount(found.name[kept], minlength=len(paths.names))


def _statistics(group: np.ndarray, duration_ns: np.ndarray, groups: int) -> dict[str, np.ndarray]:
    """Launches, total, mean, min, max and sample standard deviation (NaN for one launch) of each group."""
    launches, total_ns = _counts_and_sums(group, duration_ns, groups)
    min_ns, max_ns = np.full(groups, np.iinfo(np.int64).max), np.full(groups, np.iinfo(np.int64).min)
    mean_ns, squares = total_ns / launches, np.zeros(groups)
    for block in blocks(len(group)):
        here, times_ns = group[block].astype(np.intp), duration_ns[block]
        np.minimum.at(min_ns, here, times_ns)
        np.maximum.at(max_ns, here, times_ns)
        np.add.at(squares, here, np.square(times_ns - mean_ns[here]))
    std_ns = np.sqrt(np.where(launches > 1, squares, np.nan) / np.maximum(launches - 1, 1))
    return {
        "launches": launches, "total_ns": total_ns, "mean_ns": mean_ns, "min_ns": min_ns, "max_ns": max_ns,
        "std_ns": std_ns,
    }  # fmt: skip


def _counts_and_sums(group: np.ndarray, values: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """The number and the exact integer sum of the values of each group."""
    return _sums(group, np.broadcast_to(1, len(group)), groups), _sums(group, values, groups)


def _sums(group: np.ndarray, values: np.ndarray, groups: int) -> np.ndarray:
    """The exact integer sum of each group."""
    sums = np.zeros(groups, np.int64)
    for block in blocks(len(group)):
        np.add.at(sums, group[block].astype(np.intp), values[block])
    return sums


def _domains(trace: CaptureArrays) -> pd.Categorical:
    """The domain's name of each range instance, '' for the default domain."""
    found = trace.range_arrays
    domain = trace.capture.range_domains()[found.row]
    names = trace.capture.domains()
    pairs, code = np.unique(np.stack([found.process, domain]), axis=1, return_inverse=True)
    labels = [names.get((process, number), "") for process, number in pairs.T.tolist()]
    return _categorical(code.reshape(-1), labels)


def _categorical(code: np.ndarray, labels: list[str]) -> pd.Categorical:
    """The labels by code; labels may repeat."""
    distinct = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    renumbered = np.array([distinct[label] for label in labels], np.int32)
    return pd.Categorical.from_codes(renumbered[code] if len(code) else np.empty(0, np.int32), list(distinct))


def _sorted(table: pd.DataFrame, time_column: str, *names: str) -> pd.DataFrame:
    """The rows by falling time, then by name."""
    return table.sort_values([time_column, *names], ascending=[False, *[True] * len(names)], ignore_index=True)
