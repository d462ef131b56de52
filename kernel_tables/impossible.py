"""Activities whose times cannot be: they count as launches, and enter no time, span, gap or share.

CUPTI loses or garbles times of single activities (pytorch 192021, kineto 109, TraceLens 669). Their place and their
length are unknown then, and one of them could make a step of a millisecond last for years.
"""

import numpy as np

from kernel_tables.capture import KINDS, NONE, Activities, Calls, Capture, rows_by_value, take
from kernel_tables.errors import RESOLUTION_KEY

EARLY_NS = 1_000_000  # clocks of host and GPU differ by microseconds, never by a millisecond
SECOND_NS = 1_000_000_000
OVERLAP_NS = 1_000  # starts and ends are exact to less
USUAL = 0.1  # where more of a stream's activities overlap, its number does not mean an order


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
    leave("overlaps_next", _is_overlapping(work, has_time & ~_is_of_graph(work, calls, launch_row)))
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
    work, calls = capture.activities, capture.calls
    if not capture.is_torch or not len(calls.start):
        return np.zeros(len(work), bool)
    capture.load_call_ends()
    last_ns = max(int(calls.end.max()), int(capture.ranges.end.max(initial=0)))
    longest_ns = last_ns - min(int(calls.start.min()), int(capture.ranges.start.min(initial=last_ns)))
    return (work.end - work.start > max(longest_ns, SECOND_NS)) & (work.end > last_ns + SECOND_NS)


def _is_of_graph(work: Activities, calls: Calls, launch_row: np.ndarray) -> np.ndarray:
    """Whether an activity is of a replayed graph, whose branches overlap as they should."""
    is_replay = np.zeros(len(calls.start) + 1, bool)  # the last is for no call
    is_replay[calls.named("GraphLaunch")] = True
    return (work.node != NONE) | is_replay[launch_row]


def _is_overlapping(work: Activities, is_checked: np.ndarray) -> np.ndarray:
    """Whether an activity still runs when the next one on its stream has ended, for longer than before that started.

    A stream runs one activity after another; programmatic dependent launches overlap a little.
    """
    is_wrong, by_process = np.zeros(len(work), bool), rows_by_value(work.process, is_checked).values()
    for mine in (rows[own] for rows in by_process for own in rows_by_value(take(work.stream, rows)).values()):
        if (np.diff(work.start[mine]) < 0).any():
            mine = mine[np.argsort(work.start[mine], kind="stable")]
        start, end, wrong_ones, usual = work.start[mine], work.end[mine], [mine[:0]], max(1, USUAL * len(mine))
        while sum(map(len, wrong_ones)) <= usual:
            wrong = np.flatnonzero(end[:-1] > end[1:])
            after = start[wrong + 1]
            wrong = wrong[end[wrong] - after > np.maximum(after - start[wrong], OVERLAP_NS)]
            if not len(wrong):
                is_wrong[np.concatenate(wrong_ones)] = True
                break
            wrong_ones.append(mine[wrong])
            mine, start, end = (np.delete(column, wrong) for column in (mine, start, end))  # and what these hid
    return is_wrong
