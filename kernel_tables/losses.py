"""What a capture lost: times of activities, and work that ran and was not recorded.

CUPTI loses or garbles times of single activities (pytorch 192021, kineto 109, TraceLens 669). Their place and their
length are unknown then, and one of them could make a step of a millisecond last for years. So activities whose times
cannot be count as launches, and enter no time, span, gap or share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.capture import KINDS, LAUNCHES, NONE, Activities, Capture, process_of, rows_by_value, take
from kernel_tables.errors import RESOLUTION_KEY

if TYPE_CHECKING:
    from kernel_tables.profile import Profile

EARLY_NS = 1_000_000  # clocks of host and GPU differ by microseconds, never by a millisecond


def leave_out(capture: Capture, launch_row: np.ndarray) -> None:
    """Marks the activities with impossible times in `has_time`, names the rows of each kind in `impossible`, and puts
    them, without a length, at the call that launched them (without one, at the first time of the others)."""
    work, calls = capture.activities, capture.calls
    if capture.is_cpu_only or not len(work):
        return
    has_time = np.ones(len(work), bool)

    def leave(code: str, is_wrong: np.ndarray) -> None:
        wrong = np.flatnonzero(is_wrong & has_time)  # of several reasons, the first counts
        has_time[wrong] = False
        if len(wrong):
            work.impossible[code] = wrong

    leave("zero_time", _is_without_time(capture))
    leave("negative_duration", work.end < work.start)
    leave("starts_before_launch", np.append(calls.start, 0)[launch_row] - work.start > EARLY_NS)
    # branches of a replayed graph overlap as they should
    is_of_graph = (work.node != NONE) | np.isin(launch_row, calls.named("GraphLaunch"))
    leave("overlaps_next", _is_overlapping(work, has_time & ~is_of_graph))
    leave("outlasts_host", _is_outlasting(capture))
    if has_time.all():
        return
    wrong = np.flatnonzero(~has_time)
    first_ns = int(work.start[has_time].min()) if has_time.any() else 0
    place = np.append(calls.start, first_ns)[launch_row[wrong]]
    work.has_time, work.start, work.end = has_time, work.start.copy(), work.end.copy()
    work.start[wrong] = work.end[wrong] = place


def _is_without_time(capture: Capture) -> np.ndarray:
    """Whether an activity starts at 0, though the host did something much later only; or is a kernel that takes no
    time, where a short one would take some."""
    work, takes_some = capture.activities, RESOLUTION_KEY not in capture.facts  # else a short one takes 0 or 1 µs
    first_ns = min((int(times.min()) for times in (capture.calls.start, capture.ranges.start) if len(times)), default=0)
    is_far = not capture.is_torch and first_ns > EARLY_NS  # a trace counts from its first event
    is_empty, is_kernel = work.start == work.end, work.kind == KINDS.index("kernel")
    return (work.start == 0) & (is_empty | is_far) | is_empty & takes_some & is_kernel


def _is_outlasting(capture: Capture) -> np.ndarray:
    """Whether an activity of a trace is longer than all that the host did, and ends a second or more later. An export
    states the end of its capture, which its reader compares."""
    work, calls, second_ns = capture.activities, capture.calls, 1_000_000_000
    if not capture.is_torch or not len(calls.start):
        return np.zeros(len(work), bool)
    capture.load_call_ends()
    last_ns = max(int(calls.end.max()), int(capture.ranges.end.max(initial=0)))
    longest_ns = last_ns - min(int(calls.start.min()), int(capture.ranges.start.min(initial=last_ns)))
    return (work.end - work.start > max(longest_ns, second_ns)) & (work.end > last_ns + second_ns)


def _is_overlapping(work: Activities, is_checked: np.ndarray) -> np.ndarray:
    """Whether an activity still runs when the next one on its stream has ended, for longer than before that started.

    A stream runs one activity after another; programmatic dependent launches overlap a little. Where more than a tenth
    of a stream's activities overlap, its number does not mean an order."""
    is_wrong, by_process = np.zeros(len(work), bool), rows_by_value(work.process, is_checked).values()
    for mine in (rows[own] for rows in by_process for own in rows_by_value(take(work.stream, rows)).values()):
        if (np.diff(work.start[mine]) < 0).any():
            mine = mine[np.argsort(work.start[mine], kind="stable")]
        start, end, wrong_ones, usual = work.start[mine], work.end[mine], [mine[:0]], max(1, 0.1 * len(mine))
        while sum(map(len, wrong_ones)) <= usual:
            wrong = np.flatnonzero(end[:-1] > end[1:])
            after = start[wrong + 1]
            wrong = wrong[end[wrong] - after > np.maximum(after - start[wrong], 1_000)]  # times are exact to less
            if not len(wrong):
                is_wrong[np.concatenate(wrong_ones)] = True
                break
            wrong_ones.append(mine[wrong])
            mine, start, end = (np.delete(column, wrong) for column in (mine, start, end))  # and what these hid
    return is_wrong


def launches_without_kernels(profile: Profile) -> np.ndarray:
    """The calls that launched a kernel or a graph, succeeded, and have no activity.

    Launches while the process captures a stream do not count, since they run nothing. A runtime call and the driver
    call inside it are one launch."""
    capture, row = profile.capture, profile.attribution.launch_row
    calls = capture.calls
    launches, has_run = calls.named(*LAUNCHES), np.zeros(len(calls.start), bool)
    has_run[row[row != NONE]] = True
    if not capture.activities.is_kernel.any() or has_run[launches].all() or not capture.source.has_call_names:
        return np.empty(0, np.int64)
    capture.load_call_ends()
    start, end, thread = calls.start[launches], calls.end[launches], calls.thread[launches]
    is_fine = has_run[launches] | calls.failed[launches]
    is_fine |= calls.stream_capture_begins(start, calls.process[thread]) != NONE
    lost = [np.empty(0, np.int64)]
    for number in np.unique(thread[~is_fine]).tolist():
        mine = np.flatnonzero(thread == number)
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        is_outermost = np.append(True, start[mine][1:] >= np.maximum.accumulate(end[mine])[:-1])
        has_fine = np.bincount(np.cumsum(is_outermost) - 1, is_fine[mine]) > 0
        lost.append(launches[mine[is_outermost][~has_fine]])
    return np.concatenate(lost)


def steps_without_kernels(profile: Profile, steps: np.ndarray, step_name: str) -> np.ndarray:
    """Those of these ranges `step_name` in which the host launched kernels and none was recorded, as in others."""
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
