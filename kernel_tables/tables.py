"""The tables of a capture. Times are integer nanoseconds; the longest time comes first.

Pandas is imported only by Table.to_pandas: its import takes as long as reading most captures.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from kernel_tables.attribution import NO_RANGE, Attribution
from kernel_tables.capture import KINDS, Activities, Capture, blocks, numbered
from kernel_tables.classes import UNKNOWN, classify

IS_KERNEL = np.array([True, False, False, True])  # by kind; a replay recorded as one stands for its kernels
STANDALONE = re.compile(r"(?<!\S)(\\*>)(?!\S)")  # a ">" between spaces, which would look like a separator


class Table:
    """A table as columns by name: lists of texts, arrays of numbers."""

    def __init__(self, columns: dict):
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> Iterator[tuple]:
        """The rows, a missing number (NaN) as None."""
        lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in self.columns.values()]
        return (tuple(None if value != value else value for value in row) for row in zip(*lists, strict=True))

    def sorted(self, time: str, *names: str) -> "Table":
        """The rows, the longest time first, then by name."""
        keys = list(zip((-np.asarray(self.columns[time])).tolist(), *(self.columns[name] for name in names)))
        order = sorted(range(len(self)), key=keys.__getitem__)
        take = lambda column: column[order] if isinstance(column, np.ndarray) else [column[i] for i in order]  # noqa: E731
        return Table({name: take(column) for name, column in self.columns.items()})

    def write_csv(self, file: TextIO) -> None:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows())

    def to_pandas(self):
        """The table as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.columns)


@dataclass
class Group:
    """Activities with the same path and name."""

    path: np.ndarray
    name: np.ndarray
    kind: np.ndarray
    launches: np.ndarray
    total_ns: np.ndarray
    min_ns: np.ndarray
    max_ns: np.ndarray
    std_ns: np.ndarray  # NaN for one launch


def grouped(activities: Activities, attribution: Attribution) -> Group:
    """The activities by path and name: of these few groups, all tables are made."""
    count, rows = max(len(activities.names), 1), blocks(len(activities))
    key = np.empty(len(activities), np.int32 if len(attribution.parent) * count < 1 << 31 else np.int64)
    kind = np.zeros(count, np.int8)
    for block in rows:
        key[block] = attribution.path[block].astype(key.dtype) * count + activities.name[block]
        kind[activities.name[block]] = activities.kind[block]
    keys, group = numbered(key)
    del key
    launches = np.bincount(group, minlength=len(keys))
    total, least, most = np.zeros(len(keys), np.int64), np.full(len(keys), 1 << 62), np.zeros(len(keys), np.int64)
    for block in rows:
        duration = activities.end[block] - activities.start[block]
        np.add.at(total, group[block], duration)
        np.minimum.at(least, group[block], duration)
        np.maximum.at(most, group[block], duration)
    mean, squares = total / np.maximum(launches, 1), np.zeros(len(keys))
    for block in rows:
        deviation = activities.end[block] - activities.start[block] - mean[group[block]]
        squares += np.bincount(group[block], deviation * deviation, len(keys))
    with np.errstate(divide="ignore", invalid="ignore"):
        std = np.sqrt(squares / (launches - 1))
    path, name = np.divmod(keys, count)
    return Group(path, name, kind[name], launches, total, least, most, np.where(launches > 1, std, np.nan))


def kernels(capture: Capture, attribution: Attribution, group: Group) -> Table:
    """One row per range path and activity name: range, kernel, class, launches, total_ns, mean_ns, min_ns, max_ns,
    std_ns (the sample standard deviation, missing for one launch)."""
    label = {path: path_text(attribution.names_of(path)) for path in np.unique(group.path).tolist()}
    class_of = _classes(capture, group)
    table = {
        "range": [label[path] for path in group.path.tolist()],
        "kernel": [capture.activities.names[name] for name in group.name.tolist()],
        "class": [class_of[name] for name in group.name.tolist()],
        "launches": group.launches,
        "total_ns": group.total_ns,
        "mean_ns": group.total_ns / np.maximum(group.launches, 1),
        "min_ns": group.min_ns,
        "max_ns": group.max_ns,
        "std_ns": group.std_ns,
    }
    return Table(table).sorted("total_ns", "range", "kernel")


def ranges(attribution: Attribution, group: Group) -> Table:
    """One row per range name: range, instances, kernels, gpu_time_ns, memops, memop_time_ns. What inner ranges launched
    is included, once."""
    sums = np.zeros((len(attribution.parent), 4), np.int64)  # by path, without inner ranges
    is_kernel = IS_KERNEL[group.kind]
    for column, values in ((0, group.launches), (1, group.total_ns)):
        np.add.at(sums[:, column], group.path[is_kernel], values[is_kernel])
        np.add.at(sums[:, column + 2], group.path[~is_kernel], values[~is_kernel])
    used = np.flatnonzero(sums.any(axis=1))
    by_name = np.zeros((len(attribution.names), 4), np.int64)
    position, current, keys = np.arange(len(used)), used, []
    while len(position):  # outwards: each name on a path counts once
        inside = current != NO_RANGE
        position, current = position[inside], current[inside]
        keys.append(position * len(attribution.names) + attribution.last_name[current])
        current = attribution.parent[current]
    position, name = np.divmod(np.unique(np.concatenate([*keys, np.empty(0, np.int64)])), len(attribution.names))
    np.add.at(by_name, name, sums[used[position]])
    instances = np.zeros(len(attribution.names), np.int64)
    np.add.at(instances, attribution.last_name[1:], attribution.instances[1:])
    shown = np.flatnonzero((instances > 0) | (by_name[:, 0] > 0) | (by_name[:, 2] > 0))
    columns = dict(zip(("kernels", "gpu_time_ns", "memops", "memop_time_ns"), by_name[shown].T, strict=True))
    table = Table({"range": [attribution.names[i] for i in shown], "instances": instances[shown], **columns})
    return table.sorted("gpu_time_ns", "range")


def classes(capture: Capture, group: Group) -> Table:
    """One row per class: class, kernels (distinct names), launches, total_ns, share_of_gpu_time, largest_kernel,
    unknown_names."""
    class_of, rows = _classes(capture, group), {}
    launches, total = (np.zeros(len(capture.activities.names), np.int64) for _ in range(2))
    np.add.at(launches, group.name, group.launches)
    np.add.at(total, group.name, group.total_ns)
    for name in sorted(np.flatnonzero(launches).tolist(), key=lambda n: (-total[n], capture.activities.names[n])):
        rows.setdefault(class_of[name], []).append(name)
    named = {key: [capture.activities.names[name] for name in members] for key, members in rows.items()}
    ns = np.array([total[members].sum() for members in rows.values()], np.int64)
    table = {
        "class": list(rows),
        "kernels": np.array(list(map(len, rows.values())), np.int64),
        "launches": np.array([launches[members].sum() for members in rows.values()], np.int64),
        "total_ns": ns,
        "share_of_gpu_time": ns / max(int(total.sum()), 1),
        "largest_kernel": [names[0] for names in named.values()],
        "unknown_names": ["; ".join(names) if key == UNKNOWN else "" for key, names in named.items()],
    }
    return Table(table).sorted("total_ns", "class")


def path_text(names: tuple[str, ...]) -> str:
    r"""The path of these names, outermost first; a ">" between spaces in a name is written "\>"."""
    return " > ".join(STANDALONE.sub(r"\\\1", name) if ">" in name else name for name in names)


def _classes(capture: Capture, group: Group) -> dict[int, str]:
    """The class of each name that occurs, by its index; copies and fills are classes of their own."""
    pairs = dict(zip(group.name.tolist(), group.kind.tolist(), strict=True))
    named = [name for name, kind in pairs.items() if KINDS[kind] == "kernel"]
    found = classify([capture.activities.names[name] for name in named])
    return {name: KINDS[kind] for name, kind in pairs.items()} | dict(zip(named, found, strict=True))
