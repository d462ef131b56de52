"""Activities whose times cannot be: they count as launches, and enter no time, span, gap or share.

CUPTI loses or garbles times of single activities (pytorch 192021, kineto 109, TraceLens 669). Their place and their
length are unknown then, and one of them could make a step of a millisecond last for years.
"""

import numpy as np

from kernel_tables.capture import KINDS, NONE, Activities, Calls, Capture, blocks, numbered
from kernel_tables.errors import RESOLUTION_KEY

EARLY_NS = 1_000_000  # clocks of host and GPU differ by microseconds, never by a millisecond
OVERLAP_NS = 1_000  # starts and ends are exact to less
USUAL = 0.1  # where more of a stream's activities overlap, its number does not mean an order


def leave_out(capture: Capture, launch_row: np.ndarray) -> None:
    """Marks the activities with impossible times in `has_time`, says in `impossible` how many there are of each kind,
    and puts them, without a length, at the call that launched them (without one, at the first time of the others)."""
    work, calls = capture.activities, capture.calls
    if capture.is_cpu_only or not len(work):
        return
    kinds = {
        "zero_time": _without_time(work, RESOLUTION_KEY in capture.facts),
        "negative_duration": _rows(work, lambda rows: work.end[rows] < work.start[rows]),
        "starts_before_launch": _rows(work, lambda rows: _early_ns(work, calls, launch_row, rows) > EARLY_NS),
        "overlaps_next": _overlapping(work, calls, launch_row),
    }
    has_time = np.ones(len(work), bool)
    for code, rows in kinds.items():
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


def _without_time(work: Activities, whole_microseconds: bool) -> np.ndarray:
    """The rows of activities that start and end at 0, and of kernels that take no time, where a short one would."""

    def is_wrong(rows: slice) -> np.ndarray:
        is_empty = work.start[rows] == work.end[rows]
        if whole_microseconds:
            return is_empty & (work.start[rows] == 0)
        return is_empty & ((work.start[rows] == 0) | (work.kind[rows] == KINDS.index("kernel")))

    return _rows(work, is_wrong)


def _early_ns(work: Activities, calls: Calls, launch_row: np.ndarray, rows: slice) -> np.ndarray:
    """How long before its call each of these activities starts; 0 without a call."""
    row = launch_row[rows]
    return np.where(row == NONE, 0, np.append(calls.start, 0)[row] - work.start[rows]) if len(calls.start) else row * 0


def _overlapping(work: Activities, calls: Calls, launch_row: np.ndarray) -> np.ndarray:
    """The rows of activities that still run when the next one on their stream has ended, for longer than before it
    started.

    A stream runs one activity after another; programmatic dependent launches overlap a little. Branches of a replayed
    graph have the stream of its launch, and overlap as they should.
    """
    is_replay = np.zeros(len(calls.start) + 1, bool)
    is_replay[calls.named("GraphLaunch")] = True
    streams, stream = numbered(work.stream)
    processes, process = numbered(work.process)
    group = stream.astype(np.int64) * len(processes) + process
    found = [np.empty(0, np.int64)]
    for number in np.unique(group).tolist() if len(streams) * len(processes) > 1 else [None]:
        rows = np.arange(len(work)) if number is None else np.flatnonzero(group == number)
        rows = rows[(work.node[rows] == NONE) & ~is_replay[launch_row[rows]] & (work.end[rows] > work.start[rows])]
        start = work.start[rows]
        if (start[1:] < start[:-1]).any():
            rows = rows[np.argsort(start, kind="stable")]
            start = work.start[rows]
        end = work.end[rows]
        overlap = end[:-1] - start[1:]
        wrong = np.flatnonzero((end[:-1] > end[1:]) & (overlap > np.maximum(start[1:] - start[:-1], OVERLAP_NS)))
        if len(wrong) <= max(1, USUAL * len(rows)):
            found.append(rows[wrong])
    return np.concatenate(found)
