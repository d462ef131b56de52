"""The timeline of a capture: its middle step (without steps, all of it) as a limited number of bars in lanes. And the
time of each kernel of a step by range path, for the picture and the flame graph."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.scope import Scope
from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.step import Leaf
from kernel_tables.page.timeline import Names, Timeline, TimelineBar, lane_title, timeline
from kernel_tables.report.tables import device_name, thread_counts
from kernel_tables.units import duration
from kernel_tables.views.readable_tree import COMMUNICATION, readable_name, with_phases_as_siblings
from kernel_tables.views.timeline import KERNEL, TRACKS, step_contents, timeline_rows

MAX_LEAVES = 3000
SMALL_LEAVES = "(smaller ones)"
MAX_BARS = 12_000
MAX_LEVELS = 8  # of nested ranges of a thread


def step_leaves(scope: Scope) -> list[Leaf]:
    """The leaves of a step (without steps, of the complete capture). They are means over steps and devices, as the time
    of a step is, so shares of that can be taken."""
    activities, trace = scope.activities, scope.trace
    rows = np.flatnonzero(scope.is_in_scope)
    keys = {"path": trace.activity_path[rows], "name": activities.name[rows]}
    times = pd.DataFrame(keys | {"ns": activities.duration_ns[rows]}).groupby(list(keys))["ns"].agg(["sum", "size"])
    paths, classes = with_phases(trace.range_paths.tuples, scope), trace.activity_classes
    leaves = []
    for (path, name), ns, launches in times.itertuples():
        ranges = paths[path]
        if ranges and family(classes[name]) == COMMUNICATION:  # not in the range that happened to start it
            ranges = (ranges[0], COMMUNICATION)
        launches_per_step = launches / scope.steps_on_devices
        leaves.append(Leaf(ranges, activities.names[name], classes[name], scope.per_step_ms(ns), launches_per_step))
    return leaves


def with_phases(paths: Sequence[tuple[str, ...]], scope: Scope) -> list[tuple[str, ...]]:
    """The paths without the step and what is around it. Each begins with its phase, as in views/readable_tree.py."""
    step = scope.step_name if scope.has_steps else None
    inner_paths = with_phases_as_siblings([path[path.index(step) + 1 :] if step in path else path for path in paths])
    return [(*map(readable_name, path[:1]), *path[1:]) for path in inner_paths]


def largest_leaves(leaves: list[Leaf]) -> tuple[list[Leaf], str]:
    """The leaves that fit into a flame graph. The smallest ones of each phase are one leaf; the text is a sentence on
    these, "" without any."""
    if len(leaves) <= MAX_LEAVES:
        return leaves, ""
    leaves = sorted(leaves, key=lambda leaf: -leaf.ms)
    small_leaves: dict[tuple[str, ...], list[Leaf]] = {}  # by phase
    for leaf in leaves[MAX_LEAVES:]:
        small_leaves.setdefault(leaf.ranges[:1], []).append(leaf)
    sums = [
        Leaf(phase, SMALL_LEAVES, "other", sum(leaf.ms for leaf in small), sum(leaf.launches for leaf in small))
        for phase, small in small_leaves.items()
    ]
    return leaves[:MAX_LEAVES] + sums, (
        f"To limit the size of the page, the {len(leaves) - MAX_LEAVES:,} kernels in ranges with the least time are"
        f" shown together as “{SMALL_LEAVES}”."
    )


def capture_timeline(scope: Scope, names: Names) -> tuple[Timeline, str]:
    """The timeline of the middle step (without steps, of the complete capture); and a sentence if only its first part
    fits, else ""."""
    excerpt = _excerpt(scope)
    limit_ns = _limit_ns(scope, excerpt)
    bars = _bars(scope, excerpt, limit_ns)
    if limit_ns >= excerpt.last_ns:
        return timeline(bars, names), ""
    shown, total = duration(limit_ns - excerpt.first_ns), duration(excerpt.last_ns - excerpt.first_ns)
    note = f"Only its first {shown} of {total} are shown; kernel-tables trace writes all of it."
    return timeline(bars, names), note


class _Excerpt(NamedTuple):
    """The part of a capture that is shown. Ranges and activities are indices."""

    ranges: np.ndarray
    activities: np.ndarray
    first_ns: int
    last_ns: int


def _excerpt(scope: Scope) -> _Excerpt:
    """The middle step; without steps, the complete capture."""
    activity_arrays, range_arrays = scope.activities, scope.trace.range_arrays
    if scope.has_steps:
        step = int(scope.step_ranges[len(scope.step_ranges) // 2])
        ranges, activities = step_contents(scope.trace, scope.step_name, step)
        first_ns, last_ns = int(range_arrays.start_ns[step]), int(range_arrays.end_ns[step])
    else:
        ranges, activities = np.arange(len(range_arrays)), np.arange(len(activity_arrays))
        starts = activity_arrays.start_ns, range_arrays.start_ns, activity_arrays.launch_ns[activity_arrays.has_launch]
        first_ns = min((int(times.min()) for times in starts if len(times)), default=0)
        last_ns = int(range_arrays.end_ns.max(initial=0))
    last_ns = max(last_ns, int(activity_arrays.end_ns[activities].max(initial=0)))
    return _Excerpt(ranges, activities, first_ns, last_ns)


def _limit_ns(scope: Scope, excerpt: _Excerpt) -> int:
    """The time before which MAX_BARS bars start; the end of the excerpt if it has fewer."""
    arrays, range_arrays = scope.activities, scope.trace.range_arrays
    launched = excerpt.activities[arrays.has_launch[excerpt.activities]]  # the others have no launch time
    starts_ns = np.concatenate(
        [range_arrays.start_ns[excerpt.ranges], arrays.launch_ns_of(launched), arrays.start_ns[excerpt.activities]]
    )
    return int(np.partition(starts_ns, MAX_BARS)[MAX_BARS]) if len(starts_ns) > MAX_BARS else excerpt.last_ns


def _bars(scope: Scope, excerpt: _Excerpt, limit_ns: int) -> list[TimelineBar]:
    """The bars that start before `limit_ns`, cut there. Their times are ns from the start of the excerpt."""
    arrays, ranges, activities = scope.activities, excerpt.ranges, excerpt.activities
    is_launched = arrays.has_launch[activities] & (arrays.launch_ns_of(activities) < limit_ns)
    activities = activities[(arrays.start_ns[activities] < limit_ns) | is_launched]
    ranges = ranges[scope.trace.range_arrays.start_ns[ranges] < limit_ns]
    rows = timeline_rows(scope.trace, ranges, activities)
    rows = rows[(rows["depth"] < MAX_LEVELS) & (rows["start_ns"] < max(limit_ns, excerpt.first_ns + 1))]
    thread_numbers = {thread: number for number, thread in enumerate(thread_counts(scope)["thread"], 1)}
    paths, bars = with_phases(scope.trace.range_paths.tuples, scope), []
    for row in rows.rename(columns={"class": "kernel_class"}).itertuples(index=False):
        if row.track == KERNEL:
            source, lane = f"{device_name(row.device)}, stream {row.stream}", (row.device, row.stream)
        else:
            source, lane = f"thread {thread_numbers[row.thread]}", (thread_numbers[row.thread], row.depth)
        lane, title = (TRACKS.index(row.track), *lane), lane_title(row.track, source, row.depth)
        start_ns = row.start_ns - excerpt.first_ns
        end_ns = max(min(row.end_ns, limit_ns), row.start_ns) - excerpt.first_ns
        path = paths[row.path_id]
        bars.append(TimelineBar(lane, title, row.track, row.name, row.kernel_class, path, start_ns, end_ns))
    return bars
