"""The timeline of a capture: its middle step, or all of it, as a limited number of bars in lanes; and the
time of each kernel in a step within each range path, for the picture and the flame graph."""

from collections.abc import Sequence

import numpy as np

from kernel_tables.attribution.arrays import factorize
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.step import Leaf
from kernel_tables.page.timeline import Names, Timeline, TimelineBar, lane_title, timeline
from kernel_tables.report.tables import device_name, thread_order
from kernel_tables.units import duration
from kernel_tables.views import timeline as rows_of
from kernel_tables.views.readable_tree import COMMUNICATION, readable_name, with_phases_as_siblings
from kernel_tables.views.timeline import KERNEL, TRACKS

MOST_LEAVES = 3000
SMALLER = "(smaller ones)"
MOST_BARS = 12_000
MOST_LEVELS = 8  # of ranges, by thread


def step_leaves(scope: Scope) -> list[Leaf]:
    """The leaves of a step, the mean over steps and devices; without steps, of the complete capture."""
    activities, trace = scope.activities, scope.trace
    rows = np.flatnonzero(scope.step != NO_STEP) if len(scope.steps) else np.arange(len(activities))
    key = trace.activity_path[rows].astype(np.int64) * max(len(activities.names), 1) + activities.name[rows]
    group, of_group = factorize(key)
    ns, launches = np.zeros(len(group), np.int64), np.bincount(of_group, minlength=len(group))
    np.add.at(ns, of_group, activities.duration_ns[rows])
    paths, classes = with_phases(trace.range_paths.tuples, scope), trace.activity_classes
    count_of_names, leaves = len(activities.names), []
    for code, time, count in zip(group.tolist(), ns.tolist(), launches.tolist(), strict=True):
        path, name = paths[code // count_of_names], code % count_of_names
        ranges, ms = _part(path, classes[name]), time / 1e6 / scope.step_count
        leaves.append(Leaf(ranges, activities.names[name], classes[name], ms, count / scope.step_count))
    return leaves


def inside_step(path: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """The names of a path below the step; without steps, all names."""
    has_step = len(scope.steps) and scope.step_name in path
    return path[path.index(scope.step_name) + 1 :] if has_step else path


def _part(path: tuple[str, ...], kernel_class: str) -> tuple[str, ...]:
    """The path; for communication, that of its phase, since it only happens to be started by a module."""
    return (path[0], COMMUNICATION) if path and family(kernel_class) == COMMUNICATION else path


def with_phases(paths: Sequence[tuple[str, ...]], scope: Scope) -> list[tuple[str, ...]]:
    """The paths below the step, each beginning with its phase, as in views/readable_tree.py."""
    inner = with_phases_as_siblings([inside_step(path, scope) for path in paths])
    return [(*map(readable_name, path[:1]), *path[1:]) for path in inner]


def within_room(leaves: list[Leaf]) -> tuple[list[Leaf], str]:
    """The leaves that fit into a flame graph, the smallest of each phase as one leaf; and a sentence on these."""
    if len(leaves) <= MOST_LEAVES:
        return leaves, ""
    leaves = sorted(leaves, key=lambda leaf: -leaf.ms)
    small_leaves: dict[str, list[Leaf]] = {}
    for leaf in leaves[MOST_LEAVES:]:
        small_leaves.setdefault(leaf.ranges[0] if leaf.ranges else "", []).append(leaf)
    together = []
    for phase, small in small_leaves.items():
        ms, launches = sum(leaf.ms for leaf in small), sum(leaf.launches for leaf in small)
        together.append(Leaf((phase,) if phase else (), SMALLER, "other", ms, launches))
    return leaves[:MOST_LEAVES] + together, (
        f"To limit the size of the page, the {len(leaves) - MOST_LEAVES:,} kernels in ranges with the least time are"
        f" shown together as “{SMALLER}”."
    )


def capture_timeline(scope: Scope, names: Names) -> tuple[Timeline, str]:
    """The timeline of the middle step (without steps, of the complete capture); and a sentence if only its first part
    fits, else ""."""
    ranges, activities, first, last = _selection(scope)
    limit = _limit(scope, ranges, activities, last)
    ranges, activities = _before(scope, ranges, activities, limit)
    shown, total = duration(limit - first), duration(last - first)
    cut = f"Only its first {shown} of {total} are shown; kernel-tables trace writes all of it."
    return timeline(_bars(scope, ranges, activities, first, limit), names), cut if limit < last else ""


def _selection(scope: Scope) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The ranges and the activities of the middle step (or the capture), its start, and its end including all its
    activities."""
    activity_arrays, range_arrays = scope.activities, scope.trace.range_arrays
    if len(scope.steps):
        step = int(scope.steps[len(scope.steps) // 2])
        ranges, activities = rows_of.step_contents(scope.trace, scope.step_name, step)
        first, last = int(range_arrays.start_ns[step]), int(range_arrays.end_ns[step])
    else:
        ranges, activities = np.arange(len(range_arrays)), np.arange(len(activity_arrays))
        starts = activity_arrays.start_ns, range_arrays.start_ns, activity_arrays.launch_ns[activity_arrays.has_launch]
        first = min((int(times.min()) for times in starts if len(times)), default=0)
        last = max(
            (int(times.max()) for times in (activity_arrays.end_ns, range_arrays.end_ns) if len(times)), default=0
        )
    return ranges, activities, first, max(last, int(activity_arrays.end_ns[activities].max(initial=0)))


def _limit(scope: Scope, ranges: np.ndarray, activities: np.ndarray, last: int) -> int:
    """The time before which as many bars start as there is room for."""
    activity_arrays, range_arrays = scope.activities, scope.trace.range_arrays
    launched = activities[activity_arrays.has_launch[activities]]  # the others have no launch time
    starts = np.concatenate(
        [range_arrays.start_ns[ranges], activity_arrays.launch_ns_of(launched), activity_arrays.start_ns[activities]]
    )
    return int(np.partition(starts, MOST_BARS)[MOST_BARS]) if len(starts) > MOST_BARS else last


def _before(scope: Scope, ranges: np.ndarray, activities: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The ranges that were opened before a time, and the activities that were launched or started before it."""
    activity_arrays, range_arrays = scope.activities, scope.trace.range_arrays
    launched = activity_arrays.has_launch[activities] & (activity_arrays.launch_ns_of(activities) < limit)
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
        _, thread, device, stream, level, name, kernel_class, path_id, start_ns, end_ns, _ = row
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
