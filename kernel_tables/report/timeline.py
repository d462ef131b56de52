"""The timeline of a capture: its middle step, or all of it, as lanes of bars, as many as there is room for."""

from __future__ import annotations

import numpy as np

from kernel_tables.diagnosis.scope import Scope
from kernel_tables.page.names import Names
from kernel_tables.page.timeline import Timeline, TimelineBar, lane_title, timeline
from kernel_tables.report.leaves import with_phases
from kernel_tables.report.tables import device_name, thread_order
from kernel_tables.units import duration
from kernel_tables.views import timeline as rows_of
from kernel_tables.views.timeline import KERNEL, TRACKS

MOST_BARS = 12_000
MOST_LEVELS = 8  # of ranges, by thread


def capture_timeline(scope: Scope, names: Names) -> tuple[Timeline, str]:
    """The timeline of the middle step, of the whole capture where it has none; and a sentence where there is room for
    its first part only."""
    ranges, activities, first, last = _looked_at(scope)
    limit = _limit(scope, ranges, activities, last)
    ranges, activities = _before(scope, ranges, activities, limit)
    shown, whole = duration(limit - first), duration(last - first)
    cut = f"There is room for its first {shown} of {whole}; kernel-tables trace has all."
    return timeline(_bars(scope, ranges, activities, first, limit), names), cut if limit < last else ""


def _looked_at(scope: Scope) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The ranges and the activities of the middle step, or of the capture, its begin and its end with all that it
    launched."""
    found, held = scope.activities, scope.trace.range_arrays
    if len(scope.steps):
        step = int(scope.steps[len(scope.steps) // 2])
        ranges, activities = rows_of.inside_step(scope.trace, scope.step_name, step)
        first, last = int(held.start_ns[step]), int(held.end_ns[step])
    else:
        ranges, activities = np.arange(len(held)), np.arange(len(found))
        starts = (found.start_ns, held.start_ns, found.launch_ns[found.launched])
        first = min((int(times.min()) for times in starts if len(times)), default=0)
        last = max((int(times.max()) for times in (found.end_ns, held.end_ns) if len(times)), default=0)
    return ranges, activities, first, max(last, int(found.end_ns[activities].max(initial=0)))


def _limit(scope: Scope, ranges: np.ndarray, activities: np.ndarray, last: int) -> int:
    """The time until which there is room for all bars that start before."""
    found, held = scope.activities, scope.trace.range_arrays
    launched = activities[found.launched[activities]]  # the others have no time of a call
    starts = np.concatenate([held.start_ns[ranges], found.launch_ns[launched], found.start_ns[activities]])
    return int(np.partition(starts, MOST_BARS)[MOST_BARS]) if len(starts) > MOST_BARS else last


def _before(scope: Scope, ranges: np.ndarray, activities: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The ranges that were opened, and the activities that were launched, or ran, before a time."""
    found, held = scope.activities, scope.trace.range_arrays
    launched = found.launched[activities] & (found.launch_ns[activities] < limit)
    return ranges[held.start_ns[ranges] < limit], activities[(found.start_ns[activities] < limit) | launched]


def _bars(scope: Scope, ranges: np.ndarray, activities: np.ndarray, first: int, limit: int) -> list[TimelineBar]:
    """The bars that begin before a time, from the first on; those that are still there then end with it."""
    rows = rows_of.timeline_rows(scope.trace, ranges, activities)
    rows = rows[(rows["depth"] < MOST_LEVELS) & (rows["start_ns"] < max(limit, first + 1))]
    number = {thread: place for place, thread in enumerate(thread_order(scope)[2], 1)}  # as their table has them
    paths, bars = with_phases(scope.trace.range_paths.tuples, scope), []
    for row in rows.itertuples(index=False):
        _, thread, device, stream, level, name, kernel_class, path_id, start_ns, end_ns = row
        of_device = row.track == KERNEL
        place = f"{device_name(device)}, stream {stream}" if of_device else f"thread {number[thread]}"
        lane = TRACKS.index(row.track), *((device, stream) if of_device else (number[thread], level))
        times = start_ns - first, max(min(end_ns, limit), start_ns) - first
        bars.append(
            TimelineBar(
                lane, lane_title(row.track, place, level), row.track, name, kernel_class, paths[path_id], *times
            )
        )
    return bars
