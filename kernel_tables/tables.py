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

    frames = list(map(as_frame, tables))
    for rank, frame in zip(ranks, frames, strict=True):
        frame.insert(0, "rank", np.full(len(frame), rank))
    return pd.concat(frames, ignore_index=True)


def as_frame(table: "Table | pd.DataFrame") -> "pd.DataFrame":
    """The table as a DataFrame."""
    import pandas as pd

    texts = {name: "str" for name in table if isinstance(table[name], list)}
    return pd.DataFrame(table).astype(texts)


def _longest_first(table: Table, time: str, *names: str) -> Table:
    """The rows, the longest time first, then by name."""
    keys = list(zip((-table[time]).tolist(), *(table[name] for name in names), strict=True))
    rows = sorted(range(len(keys)), key=keys.__getitem__)
    columns = table.items()
    return {name: c[rows] if isinstance(c, np.ndarray) else [c[row] for row in rows] for name, c in columns}


@dataclass
class Group:
    """Activities with the same path and name."""

    path: np.ndarray
    name: np.ndarray
    is_memop: np.ndarray  # copies and fills; a replay that was recorded as one activity stands for its kernels
    launches: np.ndarray
    timed: np.ndarray  # how many of them have a time
    total_ns: np.ndarray
    min_ns: np.ndarray
    max_ns: np.ndarray
    std_ns: np.ndarray  # the sample standard deviation, NaN for one launch; all four are of launches with a time


def grouped(profile: "Profile", process: int | None = None) -> Group:
    """The activities, of a process if it is given, by path and name: of these few groups, all tables are made."""
    activities, path = profile.capture.activities, profile.attribution.path
    name, start, end, has_time = activities.name, activities.start, activities.end, activities.has_time
    if process is not None:
        mine = np.flatnonzero(activities.process == process)
        path, name, start, end = path[mine], name[mine], start[mine], end[mine]
        has_time = None if has_time is None else has_time[mine]
    count, rows = max(len(activities.names), 1), blocks(len(path))
    key = np.empty(len(path), np.int32 if len(profile.attribution.paths) * count < 1 << 31 else np.int64)
    for block in rows:
        key[block] = path[block].astype(key.dtype) * count + name[block]
    keys, group = numbered(key)
    del key
    timed, total, most = (np.zeros(len(keys), np.int64) for _ in range(3))
    least, launches = np.full(len(keys), np.iinfo(np.int64).max), None
    if has_time is not None:
        launches = np.bincount(group, minlength=len(keys))
        group, start, end = group[has_time], start[has_time], end[has_time]
        rows = blocks(len(group))
    for block in rows:
        duration = end[block] - start[block]
        timed += np.bincount(group[block], minlength=len(keys))
        np.add.at(total, group[block], duration)
        np.minimum.at(least, group[block], duration)
        np.maximum.at(most, group[block], duration)
    # Squares of deviations are added as integers, in two halves, so that the order of rows does not matter;
    # those of more than 4 s are shifted.
    middle = total // np.maximum(timed, 1)
    shift = np.uint64(max(int((most - least)[timed > 0].max(initial=0)).bit_length() - 32, 0))
    high, low = (np.zeros(len(keys), np.uint64) for _ in range(2))
    for block in rows:
        square = (np.abs(end[block] - start[block] - middle[group[block]]).astype(np.uint64) >> shift) ** 2
        np.add.at(high, group[block], square >> 32)
        np.add.at(low, group[block], square & 0xFFFFFFFF)
    squares = (high * 2.0**32 + low) * 4.0 ** int(shift) - (total - middle * timed) ** 2.0 / np.maximum(timed, 1)
    std = np.where(timed > 1, np.sqrt(np.maximum(squares, 0) / np.maximum(timed - 1, 1)), np.nan)
    path, name = np.divmod(keys, count)
    kinds = np.array([KINDS[kind] in ("memcpy", "memset") for kind in profile.name_kinds], bool)
    launches = timed if launches is None else launches
    if not timed.all():
        least, most = (np.where(timed > 0, column, np.nan) for column in (least, most))
    found = Group(path, name, kinds[name], launches, timed, total, least, most, std)
    require_conserved(profile, process, int(launches.sum()), int(total.sum()))
    return found


def require_conserved(profile: "Profile", process: int | None, launches: int, total_ns: int) -> None:
    """Raises NotConserved unless these are the sums of the activities, of a process if it is given."""
    activities = profile.capture.activities
    mine = slice(None) if process is None else activities.process == process
    start, end = activities.start[mine], activities.end[mine]
    expected = len(start), int(end.sum()) - int(start.sum())
    if (launches, total_ns) != expected:
        raise NotConserved(
            f"{profile.capture.path}: a table has {launches} launches and {total_ns} ns, the capture {expected[0]} and"
            f" {expected[1]} ns: a defect of kernel-tables, please report it"
        )


def kernels(profile: "Profile", under: str | None = None, process: int | None = None) -> Table:
    """One row per range path and activity name, as Profile.kernels."""
    group = _selected(profile, under, process)
    label = {path: path_text(profile.paths[path]) for path in np.unique(group.path).tolist()}
    table = {
        "range": [label[path] for path in group.path.tolist()],
        "kernel": [profile.capture.activities.names[name] for name in group.name.tolist()],
        "class": [profile.activity_classes[name] for name in group.name.tolist()],
        "launches": group.launches,
        "total_ns": group.total_ns,
        "mean_ns": np.where(group.timed > 0, group.total_ns / np.maximum(group.timed, 1), np.nan),
        "min_ns": group.min_ns,
        "max_ns": group.max_ns,
        "std_ns": group.std_ns,
    }
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
    paths, inside = profile.attribution.paths, _is_inside(profile, under)
    used, sums = _sums_by_path(profile, process)
    position, current, keys = np.arange(len(used)), used, []
    while len(position):  # outwards, as far as `under`: each name on a path counts once
        kept = inside[current] & (current != NO_RANGE)
        position, current = position[kept], current[kept]
        keys.append(position * len(paths.names) + paths.last_name[current])
        current = paths.parent[current]
    position, name = np.divmod(np.unique(np.concatenate([*keys, np.empty(0, np.int64)])), len(paths.names))
    by_name = np.zeros((len(paths.names), 4), np.int64)
    np.add.at(by_name, name, sums[position])
    opened = instance_paths(profile, process)
    instances = np.bincount(paths.last_name[opened[inside[opened]]], minlength=len(paths.names))
    shown = np.flatnonzero((instances > 0) | (by_name[:, 0] > 0) | (by_name[:, 2] > 0))
    columns = {"range": [paths.names[name] for name in shown.tolist()], "instances": instances[shown]}
    return _longest_first(columns | _sum_columns(by_name[shown]), "gpu_time_ns", "range")


def range_tree(profile: "Profile", under: str | None = None, process: int | None = None) -> Table:
    """One row per range path, as Profile.ranges with `tree`."""
    paths, (used, direct) = profile.attribution.paths, _sums_by_path(profile, process)
    sums = np.zeros((len(paths), 4), np.int64)
    sums[used] = direct
    for level in paths.levels[:0:-1]:  # into what is around, from the innermost outwards
        np.add.at(sums, paths.parent[level], sums[level])
    instances = np.bincount(instance_paths(profile, process), minlength=len(paths))
    shown = ((instances > 0) | (sums[:, 0] > 0) | (sums[:, 2] > 0)) & _is_inside(profile, under)
    shown[NO_RANGE] = False
    place: list[tuple] = [()]  # by path, what siblings are sorted by: of all paths around it, then its own
    for path, time in enumerate((sums[1:, 1] + sums[1:, 3]).tolist(), 1):
        place.append((*place[paths.parent[path]], (-time, paths.names[paths.last_name[path]])))
    order = sorted(np.flatnonzero(shown).tolist(), key=place.__getitem__)
    depth = paths.depth[order]
    columns = {"range": [path_text(paths.tuples[path]) for path in order], "depth": depth - depth.min(initial=1 << 30)}
    return columns | {"instances": instances[order]} | _sum_columns(sums[order])


def activities(profile: "Profile") -> "pd.DataFrame":
    """One row per activity, as Profile.activities."""
    import pandas as pd

    work, calls, row = profile.capture.activities, profile.capture.calls, profile.attribution.launch_row
    class_names = sorted(set(profile.activity_classes))
    class_code = np.array([class_names.index(name) for name in profile.activity_classes], np.int32)
    known = np.flatnonzero(row != NONE)
    thread, launch_ns = np.full(len(row), NONE, np.int64), np.zeros(len(row), np.int64)
    thread[known], launch_ns[known] = calls.threads[calls.thread[row[known]]], calls.start[row[known]]
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

    distinct = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    renumbered = np.array([distinct[label] for label in labels], np.int32)
    return pd.Categorical.from_codes(renumbered[code] if len(code) else np.empty(0, np.int32), list(distinct))


def _is_inside(profile: "Profile", under: str | None) -> np.ndarray:
    """Whether each path counts: all but that of no range, or those with the name `under`."""
    paths = profile.attribution.paths
    if under is None:
        return np.ones(len(paths), bool)
    profile.require_range(under)
    return paths.is_inside(under)


def _selected(profile: "Profile", under: str | None, process: int | None) -> Group:
    group = profile.grouped(process)
    if under is None:
        return group
    is_inside = _is_inside(profile, under)[group.path]
    return Group(*(column[is_inside] for column in vars(group).values()))


def _sums_by_path(profile: "Profile", process: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The paths in which something was launched directly; and the number and the time of its kernels, and of its copies
    and fills."""
    group = profile.grouped(process)
    used, path = numbered(group.path)
    sums = np.zeros((len(used), 4), np.int64)
    first = np.where(group.is_memop, 2, 0)
    np.add.at(sums, (path, first), group.launches)
    np.add.at(sums, (path, first + 1), group.total_ns)
    return used, sums


def _sum_columns(sums: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(("kernels", "gpu_time_ns", "memops", "memop_time_ns"), sums.T, strict=True))


def instance_paths(profile: "Profile", process: int | None) -> np.ndarray:
    """The path of each range, and of captured ranges once per replay; of a process if it is given."""
    found, thread = profile.attribution, profile.capture.ranges.thread
    opened = np.append(profile.range_path, found.paths.of_node[found.first_replayed : -1])
    if process is None:
        return opened
    return opened[process_of(np.append(thread, thread[found.range[found.first_replayed :]])) == process]
