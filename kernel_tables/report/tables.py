"""The tables of the page of a capture, each with a limited number of rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables import intervals, units
from kernel_tables.attribution.activities import KINDS
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.page.timeline import Names
from kernel_tables.trace import Trace
from kernel_tables.views.readable_tree import RangeTree

MAX_ROWS = 1000
SHARE = "share"
MEMORY = ("memcpy", "memset")
MISSING = -1.0  # the sort key of a missing number


@dataclass(frozen=True)
class ReportCell:
    """A cell of a table of the page."""

    text: str
    number: float | None = None  # sort key, if the column is sorted by numbers
    share: float | None = None  # the length of its bar, if it has one
    name_number: int | None = None  # the number in Names, if it is the name of a kernel
    depth: int = 0  # in a tree


NO_COUNT = ReportCell("", MISSING)


@dataclass(frozen=True)
class ReportTable:
    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[ReportCell, ...], ...]
    rest: str = ""  # a sentence on the rows that were left out
    sorts: bool = True  # whether a click on a heading sorts it


def ranges(trace: Trace, under: str | None, all_ns: int) -> ReportTable:
    """The tree of ranges, all of them or those in `under`. Here and below, shares are of `all_ns`."""
    tree = RangeTree(trace, under)
    rows = tuple(
        (
            ReportCell(row.label, depth=row.depth),
            NO_COUNT if row.node.instances is None else _count(row.node.instances),
            _count(row.node.kernels), *_time_and_share(row.node.ns, all_ns), _count(row.node.memops),
        )
        for row in tree.rows(MAX_ROWS)
    )  # fmt: skip
    headings = ("range", "times", "kernels", units.time_heading(trace.is_cpu_only), SHARE, "copies, fills")
    title = "Ranges, inner ones below outer ones"
    return ReportTable("ranges", title, headings, rows, _rest(len(tree), "ranges"), sorts=False)


def classes(trace: Trace, under: str | None, all_ns: int, names: Names) -> ReportTable:
    table = trace.classes(under)
    rows = tuple(
        (
            ReportCell(row.kernel_class), _count(row.kernels), _count(row.launches),
            *_time_and_share(row.total_ns, all_ns), _kernel(row.largest_kernel, names),
        )
        for row in _first_rows(table)
    )  # fmt: skip
    headings = ("class", "kernels", "launches", units.time_heading(trace.is_cpu_only), SHARE, "most time in")
    return ReportTable("classes", "Classes of kernels", headings, rows, _rest(len(table), "classes"))


def kernels(trace: Trace, under: str | None, all_ns: int, names: Names) -> ReportTable:
    """One row per range path and kernel; memory operations have a separate table."""
    table = trace.kernels(under)
    table = table[~table["class"].isin(MEMORY)]
    rows = tuple(
        (
            _kernel(row.kernel, names), _count(row.launches), *_time_and_share(row.total_ns, all_ns),
            _duration(row.mean_ns), _duration(row.min_ns), _duration(row.max_ns), ReportCell(row.kernel_class),
            ReportCell(row.range or "(no range)"),
        )
        for row in _first_rows(table)
    )  # fmt: skip
    heading = units.time_heading(trace.is_cpu_only)
    headings = ("kernel", "launches", heading, SHARE, "mean", "min", "max", "class", "range")
    return ReportTable("kernels", "Kernels by range", headings, rows, _rest(len(table), "kernels in ranges"))


def memory(scope: Scope, names: Names) -> ReportTable:
    """The memory operations of the whole capture by name, with the bytes of copies if the capture has them."""
    activities, is_copy = scope.activities, scope.activities.kind == KINDS.index("memcpy")
    all_ns = int(activities.duration_ns.sum())
    copied_bytes = np.full(len(activities), np.nan)
    sizes = scope.trace.capture.copies()["bytes"] if is_copy.any() else np.empty(0)  # of copies, below 0 if missing
    if len(sizes) == is_copy.sum():
        copied_bytes[is_copy] = np.where(sizes < 0, np.nan, sizes)
    rows = []
    for code in np.unique(activities.name[scope.is_memory]).tolist():
        mask = scope.is_memory & (activities.name == code)
        ns, count, moved = int(activities.duration_ns[mask].sum()), int(mask.sum()), float(copied_bytes[mask].sum())
        rows.append(
            (
                _kernel(activities.names[code], names), _count(count), *_time_and_share(ns, all_ns),
                _duration(ns / count), ReportCell(units.size(moved), MISSING if np.isnan(moved) else moved),
                _rate(moved / ns if ns else np.nan),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: -row[2].number)  # by time
    headings = ("operation", "times", "time", SHARE, "mean", "moved", "rate")
    return ReportTable("memory", "Memory operations", headings, tuple(rows))


def streams(scope: Scope) -> ReportTable:
    """The streams of each device: their activities, and their busy time as a share of the span of all activities."""
    activities, places = scope.activities, scope.trace.places
    keys = ["device", "stream"]
    groups = pd.DataFrame({key: places[key].astype(np.int64) for key in keys}).groupby(keys).indices
    span_ns = int(activities.end_ns.max() - activities.start_ns.min()) if len(activities) else 0
    rows = []
    for device, stream in sorted(groups):
        selected = groups[device, stream]
        busy_ns = intervals.union(activities.start_ns[selected], activities.end_ns[selected]).total_ns
        rows.append(
            (
                ReportCell(device_name(device), device), ReportCell(f"stream {stream}", stream),
                _count(scope.is_kernel[selected].sum()), _count(scope.is_memory[selected].sum()),
                *_time_and_share(busy_ns, span_ns),
            )
        )  # fmt: skip
    headings = ("device", "stream", "kernels", "copies, fills", "busy", SHARE)
    return ReportTable("streams", "Streams", headings, tuple(rows[:MAX_ROWS]), _rest(len(rows), "streams"))


def device_name(number: int) -> str:
    """The name of a GPU by its number, or of the processor."""
    return "processor" if number == CPU_DEVICE else f"device {number}"


def threads(scope: Scope) -> ReportTable:
    """The threads that opened ranges or launched, with the numbers that they have on this page."""
    rows = [
        (ReportCell(f"thread {number}", number), _count(row.launches), _count(row.ranges))
        for number, row in enumerate(thread_counts(scope).itertuples(), 1)
    ]
    headings = ("thread", "launches", "ranges opened")
    return ReportTable(
        "threads", "Threads of the program", headings, tuple(rows[:MAX_ROWS]), _rest(len(rows), "threads")
    )


def thread_counts(scope: Scope) -> pd.DataFrame:
    """Columns: thread (global id), launches, ranges (that it opened). Threads with most ranges come first, and the page
    numbers the threads in this order, from 1."""
    activities = scope.activities
    launches = pd.Series(activities.thread[activities.has_launch]).value_counts()
    ranges = pd.Series(scope.trace.range_arrays.thread).value_counts()
    table = pd.DataFrame({"launches": launches, "ranges": ranges}).fillna(0).astype("int64")
    table = table.rename_axis("thread").reset_index()
    return table.sort_values(["ranges", "launches", "thread"], ascending=[False, False, True])


def _first_rows(table: pd.DataFrame) -> Iterator:
    """The first MAX_ROWS rows; the column `class`, a keyword, is called `kernel_class`."""
    return table.head(MAX_ROWS).rename(columns={"class": "kernel_class"}).itertuples(index=False)


def _count(number: int) -> ReportCell:
    return ReportCell(f"{number:,}", int(number))


def _time_and_share(ns: float, total_ns: int) -> tuple[ReportCell, ReportCell]:
    share = ns / total_ns if total_ns else 0.0
    return _duration(ns), ReportCell(units.percent(share), share, share)


def _duration(ns: float) -> ReportCell:
    return ReportCell(units.duration(ns), float(ns))


def _kernel(name: str, names: Names) -> ReportCell:
    return ReportCell(name, name_number=names.kernel(name))


def _rest(count: int, noun: str) -> str:
    left_out = count - MAX_ROWS
    return f"{left_out:,} more {noun} have no room here; kernel-tables prints all." if left_out > 0 else ""


def _rate(bytes_per_ns: float) -> ReportCell:
    """A rate in GB/s, which is the same number as bytes per nanosecond."""
    if np.isnan(bytes_per_ns):
        return ReportCell("–", MISSING)
    digits = ".0f" if bytes_per_ns >= 100 else ".3g"
    return ReportCell(f"{bytes_per_ns:,{digits}} GB/s", bytes_per_ns)
