"""Which API call launched which activity. Pure numpy."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.blocks import each_block, made_by_block
from kernel_tables.attribution.keys import compact, matched
from kernel_tables.reading.global_ids import process_of

NO_LAUNCH = -1
SLOTS_PER_CALL = 8  # ids spread wider than this are sorted instead of standing in an array by id


def launch_rows(
    activity_process: np.ndarray,
    activity_correlation: np.ndarray,
    call_thread: np.ndarray,
    threads: np.ndarray,
    call_correlation: np.ndarray,
    call_start_ns: np.ndarray,
) -> np.ndarray:
    """The row of the API call of each activity as int32, NO_LAUNCH where there is none.

    Processes are global ids; CALL_THREAD is the index of each call's thread in THREADS, which are global ids too.
    Correlation ids are unique only within a process, so the join is on both. Where one id stands on several calls (a
    runtime call around a driver call), the earliest start wins, which is the outermost call; then the first row.
    """
    processes = compact(activity_process)[0]
    if len(processes) == 1 and (process_of(threads) == processes[0]).all():
        return _lookup(call_correlation, call_start_ns, activity_correlation)
    rows = np.full(len(activity_process), NO_LAUNCH, np.int32)
    for activities, calls in matched(activity_process, process_of(threads)[call_thread]):
        found = _lookup(call_correlation[calls], call_start_ns[calls], activity_correlation[activities])
        rows[activities] = np.append(calls, NO_LAUNCH)[found]
    return rows


def _lookup(ids: np.ndarray, start_ns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index in IDS of each wanted id, NO_LAUNCH where it is not there; of equal ids the one that starts first.

    A negative id is no id.
    """
    if not len(ids):
        return np.full(len(wanted), NO_LAUNCH, np.int32)
    low, high = int(ids.min()), int(ids.max())
    if low < 0:
        kept = np.flatnonzero(ids >= 0)
        return np.append(kept, NO_LAUNCH).astype(np.int32)[_lookup(ids[kept], start_ns[kept], wanted)]
    if high - low > SLOTS_PER_CALL * len(ids) + 1024:
        return _lookup_in_sorted(ids, start_ns, wanted)
    slots = np.full(high - low + 2, NO_LAUNCH, np.int32)  # the last slot stays empty

    def put(block: slice) -> None:
        slots[ids[block] - low] = np.arange(block.start, block.stop)

    each_block(put, len(ids))
    if np.count_nonzero(slots != NO_LAUNCH) < len(ids):  # an id stands on several calls
        repeated = np.flatnonzero(np.isin(ids, ids[slots[ids - low] != np.arange(len(ids))]))
        repeated = repeated[np.lexsort((-repeated, -start_ns[repeated]))]
        slots[ids[repeated] - low] = repeated  # numpy lets the last assignment win, so the earliest call comes last

    def look_up(block: slice) -> np.ndarray:
        slot = wanted[block] - low
        slot[(slot < 0) | (slot > high - low)] = -1
        return slots[slot]

    return made_by_block(look_up, len(wanted), np.int32)


def _lookup_in_sorted(ids: np.ndarray, start_ns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """As _lookup, for ids that are far apart."""
    order = np.lexsort((start_ns, ids)).astype(np.int32)
    distinct, first = np.unique(ids[order], return_index=True)
    slot = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    return np.where(distinct[slot] == wanted, order[first[slot]], NO_LAUNCH)
