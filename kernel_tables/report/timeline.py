"""The timeline of a capture: its middle step, or all of it, as a limited number of bars in lanes."""

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
    """The timeline of the middle step (without steps, of the complete capture); and a sentence if only its first part
    fits, else ""."""
    ranges, activities, first, last = _selection(scope)
    limit = _limit(scope, ranges, activities, last)
    ranges, activities = _before(scope, ranges, activities, limit)
    shown, total = duration(limit - first), duration(last - first)
    cut = f"There is room for its first {shown} of {total}; kernel-tables trace has all."
    return timeline(_bars(scope, ranges, activities, first, limit), names), cut if limit < last else ""


def _selection(scope: Scope) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The ranges and the activities of the middle step (or the capture), its start, and its end including all its
    activities."""
    activity_arrays, range_arrays = scope.activities, scope.trace.range_arrays
    if len(scope.steps):
        step = int(scope.steps[len(scope.steps) // 2])
        ranges, activities = rows_of.inside_step(scope.trace, scope.step_name, step)
        first, last = int(range_arrays.start_ns[step]), int(range_arrays.end_ns[step])
    else:
        ranges, activities = np.arange(len(range_arrays)), np.arange(len(activity_arrays))
        starts = (activity_arrays.start_ns, range_arrays.start_ns, activity_arrays.launch_ns[activity_arrays.launched])
        first = min((int(times.min()) for times in starts if len(times)), default=0)
        last = max(
            (int(times.max()) for times in (activity_arrays.end_ns, range_arrays.end_ns) if len(times)), default=0
        )
    return ranges, activities, first, max(last, int(activity_arrays.end_ns[activities].max(initial=0)))


def _limit(scope: Scope, ranges: np.ndarray, activities: np.ndarray, last: int) -> int:
    """The time before which so many bars start as fit."""
    activity_arrays, range_arrays = scope.activities, scope.trace.range_arrays
    launched = activities[activity_arrays.launched[activities]]  # the others have no launch time
    starts = np.concatenate(
        [range_arrays.start_ns[ranges], activity_arrays.launch_ns[launched], activity_arrays.start_ns[activities]]
    )
    return int(np.partition(starts, MOST_BARS)[MOST_BARS]) if len(starts) > MOST_BARS else last


def _before(scope: Scope, ranges: np.ndarray, activities: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The ranges that were opened before a time, and the activities that were launched or started before it."""
    activity_arrays, range_arrays = scope.activities, scope.trace.range_arrays
    launched = activity_arrays.launched[activities] & (activity_arrays.launch_ns[activities] < limit)
    return ranges[range_arrays.start_ns[ranges] < limit], activities[
        (activity_arrays.start_ns[activities] < limit) | launched
    ]


def _bars(scope: Scope, ranges: np.ndarray, activities: np.ndarray, first: int, limit: int) -> list[TimelineBar]:
    """The bars that start before `limit`, in ns from `first`; bars that last longer are cut there."""
    rows = rows_of.timeline_rows(scope.trace, ranges, activities)
    rows = rows[(rows["depth"] < MOST_LEVELS) & (rows["start_ns"] < max(limit, first + 1))]
    number = {thread: i for i, thread in enumerate(thread_order(scope)[2], 1)}  # as in the table of threads
    paths, bars = with_phases(scope.trace.range_paths.tuples, scope), []
    for row in rows.itertuples(index=False):
        _, thread, device, stream, level, name, kernel_class, path_id, start_ns, end_ns = row
        of_device = row.track == KERNEL
        source = f"{device_name(device)}, stream {stream}" if of_device else f"thread {number[thread]}"
        lane = TRACKS.index(row.track), *((device, stream) if of_device else (number[thread], level))
        times = start_ns - first, max(min(end_ns, limit), start_ns) - first
        bars.append(
            TimelineBar(
                lane, lane_title(row.track, source, level), row.track, name, kernel_class, paths[path_id], *times
            )
        )
    return bars
