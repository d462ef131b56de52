"""One step on a time axis: ranges and launching calls by thread, activities by stream of a device; as lanes of bars."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.classes.categories import family
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.page.colors import GREY, family_color, phase_color
from kernel_tables.page.names import Names
from kernel_tables.report.leaves import inside_step
from kernel_tables.report.tables import device_name, thread_order
from kernel_tables.terminal.units import duration

MOST_BARS = 12_000
MOST_LEVELS = 8  # of ranges, by thread


@dataclass
class _Bars:
    """The bars of a timeline, column by column."""

    lane: list[int]
    start: list[int]
    length: list[int]
    name: list[int]
    color: list[str]


def timeline(scope: Scope, names: Names) -> tuple[dict, str]:
    """The lanes and bars of the middle step, of the whole capture where it has none, in ns from its begin; and a
    sentence where there is room for its first part only."""
    rows, inside, first, last = _looked_at(scope)
    limit = _limit(scope, rows, inside, last)
    rows, inside = _before(scope, rows, inside, limit)
    lanes: dict[tuple, str] = {}
    bars = [*_ranges(scope, inside, names), *_launches(scope, rows, names), *_device(scope, rows, names, limit)]
    for key, title, *_ in sorted(bars, key=lambda bar: bar[0]):
        lanes.setdefault(key, title)
    number = {key: place for place, key in enumerate(lanes)}
    columns = _Bars([], [], [], [], [])
    for key, _, start, end, name, color in bars:
        columns.lane.append(number[key])
        columns.start.append(start - first)
        columns.length.append(max(min(end, limit) - start, 0))
        columns.name.append(name)
        columns.color.append(color)
    shown, whole = duration(limit - first), duration(last - first)
    cut = f"There is room for its first {shown} of {whole}; kernel-tables trace has all."
    return {"lanes": list(lanes.values()), **vars(columns)}, cut if limit < last else ""


def _looked_at(scope: Scope) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The activities and the ranges of the middle step, or of the capture, its begin and its end with all that it
    launched."""
    found, held = scope.activities, scope.trace.range_arrays
    if len(scope.steps):
        step = int(scope.steps[len(scope.steps) // 2])
        rows = np.flatnonzero(scope.trace.enclosing(scope.step_name) == step)
        first, last = int(held.start_ns[step]), int(held.end_ns[step])
        inside = np.flatnonzero((held.start_ns >= first) & (held.end_ns <= last))
    else:
        rows, inside = np.arange(len(found)), np.arange(len(held))
        starts = (found.start_ns, held.start_ns, found.launch_ns[found.launched])
        first = min((int(times.min()) for times in starts if len(times)), default=0)
        last = max((int(times.max()) for times in (found.end_ns, held.end_ns) if len(times)), default=0)
    return rows, inside, first, max(last, int(found.end_ns[rows].max(initial=0)))


def _limit(scope: Scope, rows: np.ndarray, inside: np.ndarray, last: int) -> int:
    """The time until which there is room for all bars that start before."""
    found, held = scope.activities, scope.trace.range_arrays
    starts = np.concatenate([held.start_ns[inside], found.launch_ns[rows], found.start_ns[rows]])
    return int(np.partition(starts, MOST_BARS)[MOST_BARS]) if len(starts) > MOST_BARS else last


def _before(scope: Scope, rows: np.ndarray, inside: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The activities that were launched, or ran, and the ranges that were opened, before a time."""
    found, held = scope.activities, scope.trace.range_arrays
    is_before = (found.start_ns[rows] < limit) | (found.launched[rows] & (found.launch_ns[rows] < limit))
    return rows[is_before], inside[held.start_ns[inside] < limit]


def _ranges(scope: Scope, inside: np.ndarray, names: Names) -> list[tuple]:
    held, paths = scope.trace.range_arrays, scope.trace.range_paths
    tuples, codes = paths.tuples, paths.of_node[: len(held)]
    threads = _numbers(scope, held.thread[inside])
    depths = [len(tuples[codes[row]]) for row in inside.tolist()]
    least = min(depths, default=0)
    found = []
    for row, thread, depth in zip(inside.tolist(), threads, depths, strict=True):
        level, path = depth - least, tuples[codes[row]]
        if level < MOST_LEVELS:
            below = inside_step(path, scope)
            title = f"ranges, thread {thread}" + (f", level {level + 1}" if level else "")
            name = names.number(path[-1])
            color = phase_color(below[0]) if below else GREY
            found.append(((0, thread, level), title, int(held.start_ns[row]), int(held.end_ns[row]), name, color))
    return found


def _launches(scope: Scope, rows: np.ndarray, names: Names) -> list[tuple]:
    found = scope.activities
    is_launched = found.launch_row[rows] != NO_LAUNCH
    rows = rows[:0] if scope.trace.is_of_processor else rows[is_launched]  # there they are the operators
    ends_ns, calls = scope.trace.capture.call_ends_and_names()
    threads = _numbers(scope, found.thread[rows])
    return [
        (
            (1, thread, 0), f"API calls, thread {thread}", int(found.launch_ns[row]),
            int(ends_ns[found.launch_row[row]]), names.number(calls[found.launch_row[row]]), GREY,
        )
        for row, thread in zip(rows.tolist(), threads, strict=True)
    ]  # fmt: skip


def _device(scope: Scope, rows: np.ndarray, names: Names, limit: int) -> list[tuple]:
    found, places, classes = scope.activities, scope.trace.places, scope.trace.activity_classes
    bars = []
    for row in rows[found.start_ns[rows] < limit].tolist():
        device, stream, name = int(places["device"][row]), int(places["stream"][row]), int(found.name[row])
        key, title = (2, device, stream), f"{device_name(device)}, stream {stream}"
        number, color = names.kernel(found.names[name]), family_color(family(classes[name]))
        bars.append((key, title, int(found.start_ns[row]), int(found.end_ns[row]), number, color))
    return bars


def _numbers(scope: Scope, threads: np.ndarray) -> list[int]:
    """Numbers for threads, as their table has them: their ids say nothing to a reader."""
    number = {thread: place for place, thread in enumerate(thread_order(scope)[2], 1)}
    return [number[thread] for thread in threads.tolist()]
