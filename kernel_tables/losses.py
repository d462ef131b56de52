"""Work that ran and was not recorded: launches, and steps, without their kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.capture import LAUNCHES, NONE, process_of
from kernel_tables.graphs import stream_capture_begins

if TYPE_CHECKING:
    from kernel_tables.profile import Profile


def launches_without_kernels(profile: Profile) -> np.ndarray:
    """The calls that launched a kernel or a graph, succeeded, and have no activity.

    Launches while the process captures a stream do not count, since they run nothing. A runtime call and the driver
    call inside it are one launch.
    """
    capture, row = profile.capture, profile.attribution.launch_row
    calls = capture.calls
    launches, has_run = calls.named(*LAUNCHES), np.zeros(len(calls.start), bool)
    has_run[row[row != NONE]] = True
    if not capture.activities.is_kernel.any() or has_run[launches].all() or not capture.source.has_call_names:
        return np.empty(0, np.int64)
    capture.load_call_ends()
    start, end, thread = calls.start[launches], calls.end[launches], calls.thread[launches]
    is_fine = has_run[launches] | calls.failed[launches]
    is_fine |= stream_capture_begins(calls, start, calls.process[thread]) != NONE
    lost = [np.empty(0, np.int64)]
    for number in np.unique(thread[~is_fine]).tolist():
        mine = np.flatnonzero(thread == number)
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        is_outermost = np.append(True, start[mine][1:] >= np.maximum.accumulate(end[mine])[:-1])
        has_fine = np.bincount(np.cumsum(is_outermost) - 1, is_fine[mine]) > 0
        lost.append(launches[mine[is_outermost][~has_fine]])
    return np.concatenate(lost)


def steps_without_kernels(profile: Profile, steps: np.ndarray, step_name: str) -> np.ndarray:
    """Those of these ranges `step_name` in which the host launched kernels and none was recorded, though others have
    some."""
    empty = steps[~np.isin(steps, profile.enclosing(step_name)[profile.capture.activities.is_kernel])]
    if not len(empty) or len(empty) == len(steps) or profile.is_cpu_only:
        return empty[:0]
    return empty[_count_in(profile, empty, profile.lost_launches) > 0]


def share_lost(profile: Profile, steps: np.ndarray) -> float:
    """The share of the launches in these ranges (of the capture if there are none) that have no kernel."""
    lost = profile.lost_launches
    launches = profile.capture.calls.named(*LAUNCHES)
    if len(steps) and len(lost):
        return _count_in(profile, steps, lost).sum() / max(_count_in(profile, steps, launches).sum(), 1)
    return len(lost) / max(len(launches), 1)


def _count_in(profile: Profile, steps: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How many of these calls each of the ranges of the same process has."""
    calls, ranges, counts = profile.capture.calls, profile.capture.ranges, np.zeros(len(steps), np.int64)
    process, of_steps = calls.process[calls.thread[rows]], process_of(ranges.thread[steps])
    for number in np.unique(of_steps).tolist():
        times, mine = np.sort(calls.start[rows[process == number]]), of_steps == number
        first, last = (np.searchsorted(times, bound[steps[mine]]) for bound in (ranges.start, ranges.end))
        counts[mine] = last - first
    return counts
