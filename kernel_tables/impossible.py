"""Activities whose times cannot be: they count as launches, and enter no time, span, gap or share.

CUPTI loses or garbles times of single activities (pytorch 192021, kineto 109, TraceLens 669). Their place and their
length are unknown then, and one of them could make a step of a millisecond last for years.
"""

import numpy as np

from kernel_tables.capture import KINDS, NONE, Activities, Calls, Capture, blocks, numbered
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
    is_replay = np.zeros(len(calls.start) + 1, bool)  # the last is for no call
    is_replay[calls.named("GraphLaunch")] = True
    in_order = np.flatnonzero(
        (work.node == NONE) & ~is_replay[launch_row]
    )  # branches of a graph overlap as they should
    kinds = {
        "zero_time": lambda: _without_time(capture),
        "negative_duration": lambda: _rows(work, lambda rows: work.end[rows] < work.start[rows]),
        "starts_before_launch": lambda: _rows(work, lambda rows: _early_ns(work, calls, launch_row, rows) > EARLY_NS),
        "overlaps_next": lambda: _overlapping(work, in_order[has_time[in_order]]),
        "outlasts_host": lambda: _outlasting(capture),
    }
    for code, find in kinds.items():
        rows = find()
        rows = rows[has_time[rows]]  # of several reasons, the first counts
        has_time[rows] = False
        if len(rows):
            work.impossible[code] = rows
    if has_time.all():
        return
    wrong = np.flatnonzero(~has_time)
    first_ns = int(work.start[has_time].min()) if has_time.any() else 0
    place = np.append(calls.start, first_ns)[launch_row[wrong]]
    work.has_time, work.start, work.end = has_time, work.start.copy(), work.end.copy()
    work.start[wrong] = work.end[wrong] = place


def _rows(work: Activities, is_wrong) -> np.ndarray:
    found = [rows.start + np.flatnonzero(is_wrong(rows)) for rows in blocks(len(work))]
    return np.concatenate(found)


def _without_time(capture: Capture) -> np.ndarray:
    """The rows of activities that start at 0, though nothing else happened then; and of kernels that take no time,
    where a short one would."""
    work, kernel = capture.activities, KINDS.index("kernel")
    takes_some = RESOLUTION_KEY not in capture.facts  # else a short kernel takes no whole microsecond
    others = [times.min() for times in (capture.calls.start, capture.ranges.start) if len(times)]
    is_far = not capture.is_torch and min(others, default=0) > EARLY_NS  # a trace counts from its first event

    def is_wrong(rows: slice) -> np.ndarray:
        start, is_empty = work.start[rows], work.start[rows] == work.end[rows]
        return (start == 0) & (is_empty | is_far) | is_empty & takes_some & (work.kind[rows] == kernel)

    return _rows(work, is_wrong)


def _outlasting(capture: Capture) -> np.ndarray:
    """The rows of activities of a trace that are longer than all that the host did, and end a second or more later. An
    export states the end of its capture, which its reader compares."""
    work, calls = capture.activities, capture.calls
    if not capture.is_torch or not len(calls.start):
        return np.empty(0, np.int64)
    capture.load_call_ends()
    last_ns = max(int(calls.end.max()), int(capture.ranges.end.max(initial=0)))
    longest_ns = last_ns - min(int(calls.start.min()), int(capture.ranges.start.min(initial=last_ns)))
    is_long = work.end - work.start > max(longest_ns, SECOND_NS)
    return np.flatnonzero(is_long & (work.end > last_ns + SECOND_NS))


def _early_ns(work: Activities, calls: Calls, launch_row: np.ndarray, rows: slice) -> np.ndarray:
    """How long before its call each of these activities starts; 0 without a call."""
    row = launch_row[rows]
    return np.where(row == NONE, 0, np.append(calls.start, 0)[row] - work.start[rows])


def _overlapping(work: Activities, rows: np.ndarray) -> np.ndarray:
    """Those of these rows that still run when the next one on their stream has ended, for longer than before it
    started.

    A stream runs one activity after another; programmatic dependent launches overlap a little.
    """
    streams, stream = numbered(work.stream)
    processes, process = numbered(work.process)
    group = stream.astype(np.int64) * len(processes) + process
    found = [np.empty(0, np.int64)]
    for number in np.unique(group).tolist() if len(streams) * len(processes) > 1 else [0]:
        mine = rows[group[rows] == number]
        if (work.start[mine][1:] < work.start[mine][:-1]).any():
            mine = mine[np.argsort(work.start[mine], kind="stable")]
        left, usual = mine, max(1, int(USUAL * len(mine)))
        while len(left) >= len(mine) - usual:  # of two that overlap each other, the second shows before the first
            start, end = work.start[left], work.end[left]
            lead, overlap = np.diff(start), end[:-1] - start[1:]
            wrong = np.flatnonzero((end[:-1] > end[1:]) & (overlap > np.maximum(lead, OVERLAP_NS)))
            if not len(wrong):
                found.append(np.setdiff1d(mine, left, assume_unique=True))
                break
            left = np.delete(left, wrong)
    return np.concatenate(found)
