"""Which API call launched which activity. Pure numpy."""

from __future__ import annotations

import numpy as np

NO_LAUNCH = -1


def launch_rows(
    activity_process: np.ndarray,
    activity_correlation: np.ndarray,
    call_process: np.ndarray,
    call_correlation: np.ndarray,
    call_start_ns: np.ndarray,
) -> np.ndarray:
    """The row of the API call of each activity, NO_LAUNCH where there is none.

    Correlation ids are unique only within a process, so the join is on both. Where one id stands on several calls (a
    runtime call around a driver call), the earliest start wins, which is the outermost call; then the first row.
    """
    rows = np.full(len(activity_process), NO_LAUNCH)
    processes = np.unique(activity_process)
    for process in processes.tolist():
        calls = np.flatnonzero((call_process == process) & (call_correlation >= 0))
        activities = np.flatnonzero((activity_process == process) & (activity_correlation >= 0))
        if len(calls) and len(activities):
            found = _lookup(call_correlation[calls], call_start_ns[calls], activity_correlation[activities])
            rows[activities] = np.where(found == NO_LAUNCH, NO_LAUNCH, calls[found])
    return rows


def _lookup(ids: np.ndarray, start_ns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index in IDS of each wanted id, NO_LAUNCH where it is not there; of equal ids the one that starts first."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > 16 * len(ids) + 1024:
        order = np.lexsort((start_ns, ids))
        distinct, first = np.unique(ids[order], return_index=True)
        slot = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
        return np.where(distinct[slot] == wanted, order[first[slot]], NO_LAUNCH)
    index_of = np.full(high - low + 2, NO_LAUNCH)  # the last slot stays empty
    index_of[ids - low] = np.arange(len(ids))
    repeated = np.flatnonzero(index_of[ids - low] != np.arange(len(ids)))
    if len(repeated):  # numpy lets the last assignment to an element win, so the earliest call is assigned last
        repeated = np.flatnonzero(np.isin(ids, ids[repeated]))
        repeated = repeated[np.lexsort((-repeated, -start_ns[repeated]))]
        index_of[ids[repeated] - low] = repeated
    inside = (wanted >= low) & (wanted <= high)
    return index_of[np.where(inside, wanted - low, -1)]
