"""Which API call launched which activity, and which launches and kernels a capture lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kernel_tables.attribution.arrays import each_block, factorize, map_blocks, positions_by_group, positions_by_key
from kernel_tables.global_ids import process_of
from kernel_tables.reading.capture import Capture, Columns

if TYPE_CHECKING:  # since activities.py imports this file
    from kernel_tables.attribution.activities import Activities

NO_ROW = -1
NO_LAUNCH = NO_ROW  # of an activity whose API call is not in the capture
MAX_SLOTS_PER_ID, SPARE_SLOTS = 8, 1024  # of an array by id; if ids need more slots, they are sorted instead
NO_CAPTURE = -1  # no stream capture is running
LAUNCH_FUNCTIONS = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")


def launch_rows(
    activity_process: np.ndarray, activity_correlation: np.ndarray, call_thread: np.ndarray, threads: np.ndarray,
    call_correlation: np.ndarray, call_start_ns: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """The row of the API call of each activity as int32, NO_LAUNCH if there is none.

    Processes are global ids; `call_thread` is the index of each call's thread in `threads`, which are global ids too.
    Correlation ids are unique only within a process, so the join is on both. If several calls have the same id (a
    runtime call around a driver call), the earliest start wins, which is the outermost call; then the first row.
    """
    processes = factorize(activity_process)[0]
    if len(processes) == 1 and (process_of(threads) == processes[0]).all():
        return rows_of_ids(call_correlation, call_start_ns, activity_correlation)
    rows = np.full(len(activity_process), NO_LAUNCH, np.int32)
    for activities, calls in positions_by_key(activity_process, process_of(threads)[call_thread]):
        index = rows_of_ids(call_correlation[calls], call_start_ns[calls], activity_correlation[activities])
        rows[activities] = np.append(calls, NO_LAUNCH)[index]
    return rows


def launches_without_kernels(capture: Capture, activities: Activities) -> int:
    """The number of calls that launched a kernel or a graph, succeeded, and have no activity.

    Launches while the process captures a stream do not count, since they run nothing. A runtime call and the driver
    call inside it are one launch: it has an activity if one of them has, and counts once if none has.
    """
    launches = _calls(capture, *LAUNCH_FUNCTIONS)
    process = process_of(launches["thread"])
    has_activity = _has_activity(process, launches["correlation"], activities)
    has_failed = launches["returned"] > 0
    is_capturing = stream_capture_begins(capture, launches["start"], process) != NO_CAPTURE
    rows = np.flatnonzero(~has_activity & ~has_failed & ~is_capturing)
    rows = rows[~_nest_with_any(launches, rows, np.flatnonzero(has_activity))]
    return _outermost_count({name: launches[name][rows] for name in ("start", "end", "thread")})


class KernelsWithoutCalls(NamedTuple):
    """How many activities were launched before the capture, and how many in it by a call that was lost."""

    launched_before: int
    call_lost: int


def kernels_without_calls(activities: Activities, calls: Columns, call_process: np.ndarray) -> KernelsWithoutCalls:
    """The number of activities whose call is not in the capture.

    An activity was launched within the capture if it started after the first recorded call of its process, and has a
    higher correlation id, since ids rise with every call.
    """
    without_call = np.flatnonzero(~activities.has_launch)
    numbered = np.flatnonzero(calls["correlation"] >= 0)
    launched_before = call_lost = 0
    for positions, call_positions in positions_by_key(activities.process[without_call], call_process[numbered]):
        rows, call_rows = without_call[positions], numbered[call_positions]
        is_within = np.zeros(len(rows), bool)
        if len(call_rows):
            first = call_rows[np.argmin(calls["start"][call_rows])]
            is_within = activities.correlation[rows] > calls["correlation"][first]
            is_within &= activities.start_ns[rows] > calls["start"][first]
        call_lost += int(is_within.sum())
        launched_before += int((~is_within).sum())
    return KernelsWithoutCalls(launched_before, call_lost)


def stream_capture_begins(capture: Capture, times_ns: np.ndarray, process: np.ndarray) -> np.ndarray:
    """The begin of the stream capture that is running in the process at each time, NO_CAPTURE if none is running."""
    begins, ends = (_calls(capture, name) for name in ("StreamBeginCapture", "StreamEndCapture"))
    begin_process, end_process = process_of(begins["thread"]), process_of(ends["thread"])
    began_ns = np.full(len(times_ns), NO_CAPTURE, np.int64)
    for rows, begin_rows in positions_by_key(process, begin_process):
        begins_ns = np.sort(begins["start"][begin_rows])
        ends_ns = np.sort(ends["start"][end_process == process[rows[0]]])
        begun = np.searchsorted(begins_ns, times_ns[rows], "right")
        is_open = begun > np.searchsorted(ends_ns, times_ns[rows], "right")
        began_ns[rows[is_open]] = begins_ns[begun[is_open] - 1]
    return began_ns


def _calls(capture: Capture, *functions: str) -> Columns:
    """The calls of these functions in any version, of CUDA's runtime (cuda) and driver (cu) and of HIP."""
    return capture.calls(*(f"{interface}{name}" for name in functions for interface in ("cuda", "cu", "hip")))


def _has_activity(process: np.ndarray, correlation: np.ndarray, activities: Activities) -> np.ndarray:
    """Whether some activity has each (process, correlation id)."""
    has_activity = np.zeros(len(process), bool)
    for rows, activity_rows in positions_by_key(process, activities.process):
        has_activity[rows] = np.isin(correlation[rows], activities.correlation[activity_rows])
    return has_activity


def _nest_with_any(launches: Columns, rows: np.ndarray, other_rows: np.ndarray) -> np.ndarray:
    """Whether each of the launches `rows` is inside or around one of `other_rows` on its thread."""
    nests = np.zeros(len(rows), bool)
    starts, ends, threads = launches["start"], launches["end"], launches["thread"]
    other_rows = other_rows[np.argsort(starts[other_rows], kind="stable")]
    for positions, other_positions in positions_by_key(threads[rows], threads[other_rows]):
        row, other = rows[positions], other_rows[other_positions]
        before = np.searchsorted(starts[other], starts[row], "right") - 1
        is_inside = (before >= 0) & (np.append(ends[other], 0)[before] >= ends[row])
        is_around = np.searchsorted(starts[other], starts[row]) < np.searchsorted(starts[other], ends[row])
        nests[positions] = is_inside | is_around
    return nests


def _outermost_count(calls: Columns) -> int:
    """The number of calls that are inside no other call on their thread; of calls with equal times, one."""
    threads, thread_index = factorize(calls["thread"])
    count = 0
    for rows in positions_by_group(thread_index, len(threads)):
        rows = rows[np.lexsort((-calls["end"][rows], calls["start"][rows]))]
        latest_end_ns = np.maximum.accumulate(calls["end"][rows])
        count += 1 + np.count_nonzero(calls["start"][rows[1:]] >= latest_end_ns[:-1])
    return count


def rows_of_ids(ids: np.ndarray, start_ns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index in `ids` of each wanted id, NO_ROW if it is absent; of equal ids the one that starts first.

    Negative ids are not looked up.
    """
    if not len(ids):
        return np.full(len(wanted), NO_ROW, np.int32)
    low, high = int(ids.min()), int(ids.max())
    if low < 0:
        numbered = np.flatnonzero(ids >= 0)
        return np.append(numbered, NO_ROW).astype(np.int32)[rows_of_ids(ids[numbered], start_ns[numbered], wanted)]
    if high - low > MAX_SLOTS_PER_ID * len(ids) + SPARE_SLOTS:
        return _rows_of_sparse_ids(ids, start_ns, wanted)
    slots = np.full(high - low + 2, NO_ROW, np.int32)  # the last slot stays empty

    def put(block: slice) -> None:
        slots[ids[block] - low] = np.arange(block.start, block.stop)

    each_block(put, len(ids))
    if np.count_nonzero(slots != NO_ROW) < len(ids):  # several calls have the same id
        repeated = np.flatnonzero(np.isin(ids, ids[slots[ids - low] != np.arange(len(ids))]))
        repeated = repeated[np.lexsort((-repeated, -start_ns[repeated]))]
        slots[ids[repeated] - low] = repeated  # in numpy the last assignment wins, so the earliest call comes last

    def look_up(block: slice) -> np.ndarray:
        slot = wanted[block] - low
        slot[(slot < 0) | (slot > high - low)] = -1
        return slots[slot]

    return map_blocks(look_up, len(wanted), np.int32)


def _rows_of_sparse_ids(ids: np.ndarray, start_ns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """As rows_of_ids, for ids that are far apart."""
    order = np.lexsort((start_ns, ids)).astype(np.int32)
    distinct, first = np.unique(ids[order], return_index=True)
    slot = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    return np.where(distinct[slot] == wanted, order[first[slot]], NO_ROW)
