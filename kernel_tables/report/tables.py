"""The tables of the page of a capture, as rows of texts and numbers; rows that do not fit are counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_tables import intervals, units
from kernel_tables.attribution.activities import KINDS
from kernel_tables.attribution.arrays import factorize
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.page.timeline import Names
from kernel_tables.trace import Trace
from kernel_tables.views.readable_tree import RangeTree

MOST_ROWS = 1000
SHARE = "share"
MEMORY = ("memcpy", "memset")
MISSING = -1.0  # the sort key of a missing number


@dataclass(frozen=True)
class ReportCell:
    """The text of a cell, the number by which it sorts, and optionally a share for its bar, the number of a full name
    and a depth in a tree."""

    text: str
    number: float | None = None
    share: float | None = None
    name: int | None = None
    depth: int = 0


NO_COUNT = ReportCell("", MISSING)


@dataclass(frozen=True)
class ReportTable:
    """A table of the page. `rest` is a sentence on the rows that do not fit."""

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[ReportCell, ...], ...]
    rest: str = ""
    sorts: bool = True


def ranges(trace: Trace, under: str | None, all_ns: int) -> ReportTable:
    """The tree of ranges."""
    tree = RangeTree(trace, under)
    rows = tuple(
        (
            ReportCell(row.label, depth=row.depth),
            NO_COUNT if row.node.instances is None else _count(row.node.instances), _count(row.node.kernels),
            *_time(row.node.ns, all_ns), _count(row.node.memops),
        )
        for row in tree.rows(MOST_ROWS)
    )  # fmt: skip
    headings = ("range", "times", "kernels", units.time_heading(trace.is_cpu_only), SHARE, "copies, fills")
    rest_line = _rest(len(tree), "ranges")
    return ReportTable("ranges", "Ranges, inner ones below outer ones", headings, rows, rest_line, sorts=False)


def classes(trace: Trace, under: str | None, all_ns: int, names: Names) -> ReportTable:
    table = trace.classes(under)
    rows = tuple(
        (
            ReportCell(row[0]),
            _count(row.kernels),
            _count(row.launches),
            *_time(row.total_ns, all_ns),
            _kernel(row.largest_kernel, names),
        )
        for row in table.head(MOST_ROWS).itertuples(index=False)
    )
    headings = ("class", "kernels", "launches", units.time_heading(trace.is_cpu_only), SHARE, "most time in")
    return ReportTable("classes", "Classes of kernels", headings, rows, _rest(len(table), "classes"))


def kernels(trace: Trace, under: str | None, all_ns: int, names: Names) -> ReportTable:
    """One row per range path and kernel; memory operations have a separate table."""
    table = trace.kernels(under)
    table = table[~table["class"].isin(MEMORY)]
    rows = tuple(
        (
            _kernel(row[1], names), _count(row.launches), *_time(row.total_ns, all_ns), _duration(row.mean_ns),
            _duration(row.min_ns), _duration(row.max_ns), ReportCell(row[2]), ReportCell(row[0] or "(no range)"),
        )
        for row in table.head(MOST_ROWS).itertuples(index=False)
    )  # fmt: skip
    heading = units.time_heading(trace.is_cpu_only)
    headings = ("kernel", "launches", heading, SHARE, "mean", "min", "max", "class", "range")
    return ReportTable("kernels", "Kernels by range", headings, rows, _rest(len(table), "kernels in ranges"))


def memory(scope: Scope, names: Names) -> ReportTable:
    """Copies by source and target, with their bytes if the capture has them, and sets."""
    activities, is_copy = scope.activities, scope.activities.kind == KINDS.index("memcpy")
    all_ns = int(activities.duration_ns.sum())
    moved = np.full(len(activities), np.nan)
    sizes = scope.trace.capture.copies()["bytes"] if is_copy.any() else np.empty(0)
    if len(sizes) == is_copy.sum():
        moved[is_copy] = np.where(sizes < 0, np.nan, sizes)
    rows = []
    for code in np.unique(activities.name[scope.is_memory]).tolist():
        mask = scope.is_memory & (activities.name == code)
        ns, count, amount = int(activities.duration_ns[mask].sum()), int(mask.sum()), float(moved[mask].sum())
        rate = amount / ns if ns and amount == amount else None
        rows.append(
            (
                _kernel(activities.names[code], names), _count(count), *_time(ns, all_ns), _duration(ns / count),
                ReportCell(units.size(amount), MISSING if amount != amount else amount), _rate(rate),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: -row[2].number)
    headings = ("operation", "times", "time", SHARE, "mean", "moved", "rate")
    return ReportTable("memory", "Memory operations", headings, tuple(rows))


def streams(scope: Scope) -> ReportTable:
    """The streams of each device: their activities, and the share of the time in which they were busy."""
    activities, places = scope.activities, scope.trace.places
    key = places["device"].astype(np.int64) * (1 << 32) + places["stream"]
    codes, of_stream = factorize(key)
    span_ns = int(activities.end_ns.max() - activities.start_ns.min()) if len(activities) else 0
    rows = []
    for number, code in enumerate(codes.tolist()):
        mask = of_stream == number
        busy = intervals.union(activities.start_ns[mask], activities.end_ns[mask]).total_ns
        rows.append(
            (
                ReportCell(device_name(code >> 32), code >> 32),
                ReportCell(f"stream {code & 0xFFFFFFFF}", code & 0xFFFFFFFF),
                _count(int((mask & scope.is_kernel).sum())), _count(int((mask & scope.is_memory).sum())),
                *_time(busy, span_ns),
            )
        )  # fmt: skip
    headings = ("device", "stream", "kernels", "copies, fills", "busy", SHARE)
    return ReportTable("streams", "Streams", headings, tuple(rows[:MOST_ROWS]), _rest(len(rows), "streams"))


def device_name(number: int) -> str:
    """The name of a GPU by its number, or of the processor."""
    return "processor" if number == CPU_DEVICE else f"device {number}"


def threads(scope: Scope) -> ReportTable:
    """The threads that opened ranges or launched, numbered on this page."""
    launched, opened, order = thread_order(scope)
    rows = [
        (ReportCell(f"thread {number}", number), _count(launched.get(thread, 0)), _count(opened.get(thread, 0)))
        for number, thread in enumerate(order, 1)
    ]
    headings = ("thread", "launches", "ranges opened")
    return ReportTable(
        "threads", "Threads of the program", headings, tuple(rows[:MOST_ROWS]), _rest(len(rows), "threads")
    )


def thread_order(scope: Scope) -> tuple[dict[int, int], dict[int, int], list[int]]:
    """Launches and opened ranges by thread, and the threads, those that opened most ranges first."""
    activities, ranges = scope.activities, scope.trace.range_arrays
    launched, opened = _occurrences(activities.thread[activities.has_launch]), _occurrences(ranges.thread)
    order = sorted(
        launched.keys() | opened.keys(), key=lambda thread: (-opened.get(thread, 0), -launched.get(thread, 0), thread)
    )
    return launched, opened, order


def _occurrences(threads: np.ndarray) -> dict[int, int]:
    ids, counts = np.unique(threads, return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def _count(number: int) -> ReportCell:
    return ReportCell(f"{number:,}", int(number))


def _time(ns: float, total_ns: int) -> tuple[ReportCell, ReportCell]:
    share = ns / total_ns if total_ns else 0.0
    return _duration(ns), ReportCell(units.percent(share), share, share)


def _duration(ns: float) -> ReportCell:
    return ReportCell(units.duration(ns), float(ns))


def _kernel(name: str, names: Names) -> ReportCell:
    return ReportCell(name, name=names.kernel(name))


def _rest(count: int, noun: str) -> str:
    hidden = count - MOST_ROWS
    return f"{hidden:,} more {noun} have no room here; kernel-tables prints all." if hidden > 0 else ""


def cut_names(names: Sequence[str], most: int) -> list[str]:
    """The names, cut at the end if they have more than `most` characters."""
    return [name if len(name) <= most else name[:most] + "…" for name in names]


def _rate(bytes_per_ns: float | None) -> ReportCell:
    """A rate in GB/s, which bytes per nanosecond are."""
    if bytes_per_ns is None:
        return ReportCell("–", MISSING)
    digits = ".0f" if bytes_per_ns >= 100 else ".3g"
    return ReportCell(f"{bytes_per_ns:,{digits}} GB/s", bytes_per_ns)
