"""The tables of a profile. Times are integer nanoseconds; the longest time comes first.

Tables are made without pandas, whose import takes as long as reading most captures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution import NO_RANGE, path_text
from kernel_tables.capture import KINDS, NONE, blocks, numbered, process_of
from kernel_tables.classes import UNKNOWN
from kernel_tables.errors import NotConserved

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.profile import Profile


Table = dict[str, list | np.ndarray]  # columns by name: lists of texts, arrays of numbers


def joined(ranks: Sequence[int | None], tables: Sequence[Table]) -> "Table | pd.DataFrame":
    """The tables below one another, with a first column for the rank of each row if ranks are known."""
    if ranks[0] is None:
        return tables[0]
    import pandas as pd

    frames = [as_frame({"rank": rank} | table) for rank, table in zip(ranks, tables, strict=True)]
    return pd.concat(frames, ignore_index=True)


def as_frame(table: "Table | pd.DataFrame") -> "pd.DataFrame":
    """The table as a DataFrame, with lists as columns of texts."""
    import pandas as pd

    return pd.DataFrame(table).astype({name: "str" for name in table if isinstance(table[name], list)})


def _longest_first(table: Table, time: str, *names: str) -> Table:
    """The rows, the longest time first, then by name."""
    keys = list(zip((-table[time]).tolist(), *(table[name] for name in names), strict=True))
    rows = sorted(range(len(keys)), key=keys.__getitem__)
    return {name: c[rows] if isinstance(c, np.ndarray) else [c[row] for row in rows] for name, c in table.items()}


@dataclass
class Group:
    """Activities with the same path and name."""

    path: np.ndarray
    name: np.ndarray
    is_memop: np.ndarray  # copies and fills; a replay that was recorded as one activity stands for its kernels
    launches: np.ndarray
    total_ns: np.ndarray  # these are of launches with a time
    mean_ns: np.ndarray
    min_ns: np.ndarray
    max_ns: np.ndarray
    std_ns: np.ndarray  # the sample standard deviation, NaN for one launch


def grouped(profile: "Profile", process: int | None = None) -> Group:
    """The activities, of a process if it is given, by path and name: of these few groups, all tables are made. Raises
    NotConserved unless they have the launches and the time of the activities."""
    activities, path = profile.capture.activities, profile.attribution.path
    count = max(len(activities.names), 1)
    key = path.astype(np.int32 if len(profile.attribution.paths) * count < 1 << 31 else np.int64)
    key *= count
    key += activities.name
    mine = slice(None) if process is None else activities.process == process
    keys, group = numbered(key[mine])
    launches = np.bincount(group, minlength=len(keys))
    start, end, timed = activities.start[mine], activities.end[mine], launches
    expected = f"{len(start)} launches and {end.sum() - start.sum()} ns"
    if activities.has_time is not None:
        has_time = activities.has_time[mine]
        group, start, end = group[has_time], start[has_time], end[has_time]
        timed = np.bincount(group, minlength=len(keys))
    duration = end - start
    least, most, total = np.full(len(keys), np.iinfo(np.int64).max), *np.zeros((2, len(keys)), np.int64)
    np.minimum.at(least, group, duration)
    np.maximum.at(most, group, duration)
    np.add.at(total, group, duration)
    mean = np.where(timed > 0, total / np.maximum(timed, 1), np.nan)
    squares = np.zeros(len(keys))
    for rows in blocks(len(group)):
        squares += np.bincount(group[rows], (duration[rows] - mean[group[rows]]) ** 2, len(keys))
    std = np.where(timed > 1, np.sqrt(squares / np.maximum(timed - 1, 1)), np.nan)
    std = np.array([float(f"{one:.10g}") for one in std.tolist()])  # more digits depend on the order of rows
    if not timed.all():
        least, most = (np.where(timed > 0, column, np.nan) for column in (least, most))
    path, name = np.divmod(keys, count)
    is_memop = np.isin(np.array(profile.name_kinds, int), [KINDS.index("memcpy"), KINDS.index("memset")])
    if (found := f"{launches.sum()} launches and {total.sum()} ns") != expected:
        problem = f"a table has {found}, the capture {expected}: a defect of kernel-tables, please report it"
        raise NotConserved(f"{profile.capture.path}: {problem}")
    return Group(path, name, is_memop[name], launches, total, mean, least, most, std)


def kernels(profile: "Profile", under: str | None = None, process: int | None = None) -> Table:
    """One row per range path and activity name, as Profile.kernels."""
    group = _selected(profile, under, process)
    table = {
        "range": [path_text(profile.paths[path]) for path in group.path.tolist()],
        "kernel": [profile.capture.activities.names[name] for name in group.name.tolist()],
        "class": [profile.activity_classes[name] for name in group.name.tolist()],
    }
    table |= {name: getattr(group, name) for name in ("launches", "total_ns", "mean_ns", "min_ns", "max_ns", "std_ns")}
    return _longest_first(table, "total_ns", "range", "kernel")


def classes(profile: "Profile", under: str | None = None, process: int | None = None) -> Table:
    """One row per class, as Profile.classes."""
    group, names = _selected(profile, under, process), profile.capture.activities.names
    launches, total = (np.zeros(len(names), np.int64) for _ in range(2))
    np.add.at(launches, group.name, group.launches)
    np.add.at(total, group.name, group.total_ns)
    members: dict[str, list[int]] = {}  # by class, names with the most time first
    for name in sorted(np.flatnonzero(launches).tolist(), key=lambda name: (-total[name], names[name])):
        members.setdefault(profile.activity_classes[name], []).append(name)
    ns = np.array([total[of_class].sum() for of_class in members.values()], np.int64)
    unknown = "; ".join(names[name] for name in members.get(UNKNOWN, []))
    table = {
        "class": list(members),
        "kernels": np.array(list(map(len, members.values())), np.int64),
        "launches": np.array([launches[of_class].sum() for of_class in members.values()], np.int64),
        "total_ns": ns,
        "share_of_gpu_time": ns / max(int(ns.sum()), 1),
        "largest_kernel": [names[of_class[0]] for of_class in members.values()],
        "unknown_names": [unknown if name == UNKNOWN else "" for name in members],
    }
    return _longest_first(table, "total_ns", "class")


def ranges(profile: "Profile", under: str | None = None, process: int | None = None) -> Table:
    """One row per range name, as Profile.ranges."""
    paths, inside = profile.attribution.paths, is_inside(profile, under)
    sums = _sums_by_path(profile, process)
    launching = around = np.flatnonzero(sums.any(axis=1))
    keys = [np.empty(0, np.int64)]
    while len(around):  # outwards, as far as `under`: each name on a path counts once
        kept = inside[around] & (around != NO_RANGE)
        launching, around = launching[kept], around[kept]
        keys.append(launching * len(paths.names) + paths.last_name[around])
        around = paths.parent[around]
    launching, name = np.divmod(np.unique(np.concatenate(keys)), len(paths.names))
    by_name = np.zeros((len(paths.names), 4), np.int64)
    np.add.at(by_name, name, sums[launching])
    opened = instance_paths(profile, process)
    instances = np.bincount(paths.last_name[opened[inside[opened]]], minlength=len(paths.names))
    shown = np.flatnonzero((instances > 0) | by_name.any(axis=1))
    columns = {"range": [paths.names[name] for name in shown.tolist()], "instances": instances[shown]}
    return _longest_first(columns | _sum_columns(by_name[shown]), "gpu_time_ns", "range")


def range_tree(profile: "Profile", under: str | None = None, process: int | None = None) -> Table:
    """One row per range path, as Profile.ranges with `tree`."""
    paths, sums = profile.attribution.paths, _sums_by_path(profile, process)
    for level in paths.levels[:0:-1]:  # into what is around, from the innermost outwards
        np.add.at(sums, paths.parent[level], sums[level])
    instances = np.bincount(instance_paths(profile, process), minlength=len(paths))
    shown = ((instances > 0) | sums.any(axis=1)) & is_inside(profile, under)
    shown[NO_RANGE] = False
    place: list[tuple] = [()]  # by path, what siblings are sorted by: of all paths around it, then its own
    for path, time in enumerate((sums[1:, 1] + sums[1:, 3]).tolist(), 1):
        place.append((*place[paths.parent[path]], (-time, paths.names[paths.last_name[path]])))
    order = sorted(np.flatnonzero(shown).tolist(), key=place.__getitem__)
    depth = np.array([len(paths.tuples[path]) for path in order], int)
    columns = {"range": [path_text(paths.tuples[path]) for path in order], "depth": depth - depth.min(initial=1 << 30)}
    return columns | {"instances": instances[order]} | _sum_columns(sums[order])


def activities(profile: "Profile") -> "pd.DataFrame":
    """One row per activity, as Profile.activities."""
    import pandas as pd

    work, calls, row = profile.capture.activities, profile.capture.calls, profile.attribution.launch_row
    class_names = sorted(set(profile.activity_classes))
    class_code = np.array([class_names.index(name) for name in profile.activity_classes], np.int32)
    thread = np.append(calls.threads[calls.thread], NONE)[row]  # the last element is for those without a call
    launch_ns = np.append(calls.start, 0)[row]
    start, end, length = work.start.astype(np.int64), work.end.astype(np.int64), work.end - work.start
    if work.has_time is not None:
        start, end, length = (pd.arrays.IntegerArray(one, mask=~work.has_time) for one in (start, end, length))
    return pd.DataFrame(
        {
            "kind": pd.Categorical.from_codes(work.kind, KINDS),
            "name": _categorical(work.name, work.names),
            "class": pd.Categorical.from_codes(class_code[work.name], class_names),
            "range": _categorical(profile.attribution.path, list(map(path_text, profile.paths))),
            "start_ns": start,
            "end_ns": end,
            "duration_ns": length,
            "process": work.process.astype(np.int64),
            "thread": thread,
            "device": work.device.astype(np.int64),
            "stream": work.stream_number.astype(np.int64),
            "launch_ns": pd.arrays.IntegerArray(launch_ns, mask=row == NONE),
            "path_id": profile.attribution.path,
        }
    )


def range_instances(profile: "Profile") -> "pd.DataFrame":
    """One row per range instance, as Profile.range_instances."""
    import pandas as pd

    ranges = profile.capture.ranges
    process = process_of(ranges.thread).astype(np.int64)
    pairs, code = np.unique([process, ranges.domain], axis=1, return_inverse=True)
    domains = [ranges.domains.get((process, domain), "") for process, domain in pairs.T.tolist()]
    return pd.DataFrame(
        {
            "instance": np.arange(len(ranges)),
            "name": _categorical(ranges.name, ranges.names),
            "domain": _categorical(code.reshape(-1), domains),
            "process": process,
            "thread": ranges.thread.astype(np.int64),
            "start_ns": ranges.start.astype(np.int64),
            "end_ns": ranges.end.astype(np.int64),
            "path_id": profile.range_path,
        }
    )


def _categorical(code: np.ndarray, labels: list[str]) -> "pd.Categorical":
    """The labels of these codes. Labels may repeat, which categories may not."""
    import pandas as pd

    renumbered, distinct = pd.factorize(np.array(labels, object))
    return pd.Categorical.from_codes(renumbered[code], distinct)


def is_inside(profile: "Profile", under: str | None) -> np.ndarray:
    """Whether each path counts: all do, or those with the name `under`. Raises TraceError if no range has that."""
    paths = profile.attribution.paths
    if under is None:
        return np.ones(len(paths), bool)
    profile.require_range(under)
    return paths.is_inside(under)


def _selected(profile: "Profile", under: str | None, process: int | None) -> Group:
    group = profile.grouped(process)
    rows = is_inside(profile, under)[group.path]
    return Group(*(column[rows] for column in vars(group).values()))


def _sums_by_path(profile: "Profile", process: int | None) -> np.ndarray:
    """By path: the number and the time of the kernels launched directly in it, and of the copies and fills."""
    group, sums = profile.grouped(process), np.zeros((len(profile.attribution.paths), 4), np.int64)
    first = np.where(group.is_memop, 2, 0)
    np.add.at(sums, (group.path, first), group.launches)
    np.add.at(sums, (group.path, first + 1), group.total_ns)
    return sums


def _sum_columns(sums: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(("kernels", "gpu_time_ns", "memops", "memop_time_ns"), sums.T, strict=True))


def instance_paths(profile: "Profile", process: int | None) -> np.ndarray:
    """The path of each range, and of captured ranges once per replay; of a process if it is given."""
    found, thread = profile.attribution, profile.capture.ranges.thread
    opened = np.append(profile.range_path, found.paths.of_node[found.first_replayed : -1])
    if process is None:
        return opened
    return opened[process_of(np.append(thread, thread[found.range[found.first_replayed :]])) == process]
