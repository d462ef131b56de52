"""Launches whose kernels are missing, and kernels whose launches are: what a capture lost."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.activities import Activities
from kernel_tables.reading.capture import Capture, Columns
from kernel_tables.reading.global_ids import process_of

LAUNCH = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")
BEGIN_STREAM_CAPTURE, END_STREAM_CAPTURE = ("StreamBeginCapture",), ("StreamEndCapture",)


def launches_without_kernels(capture: Capture, activities: Activities) -> int:
    """The number of calls that launch a kernel or a graph, succeeded, and have nothing to show for it.

    A launch while a stream is being captured into a graph runs nothing then; a runtime and a driver call one inside the
    other are one launch.
    """
    launches = _calls(capture, LAUNCH)
    process = process_of(launches["thread"])
    done = _has_activity(process, launches["correlation"], activities)
    failed = launches["returned"] > 0
    idle = _while_capturing_streams(capture, launches["start"], process)
    lone = np.flatnonzero(~done & ~failed & ~idle)
    return int((~_overlaps_a_done_one(launches, lone, np.flatnonzero(done))).sum())


def kernels_without_calls(activities: Activities, calls: Columns, call_process: np.ndarray) -> tuple[int, int]:
    """(activities launched before the capture, activities whose call within the capture was not recorded).

    Correlation ids rise with every call, so an id above the first recorded one of its process was given within the
    capture; an activity that ran before the first recorded call was launched before it.
    """
    without = np.flatnonzero(~activities.launched)
    before = lost = 0
    for process in np.unique(activities.process[without]).tolist():
        mine = without[activities.process[without] == process]
        own_calls = np.flatnonzero((call_process == process) & (calls["correlation"] >= 0))
        within = np.zeros(len(mine), bool)
        if len(own_calls):
            first = own_calls[np.argmin(calls["start"][own_calls])]
            within = activities.correlation[mine] > calls["correlation"][first]
            within &= activities.start_ns[mine] > calls["start"][first]
        lost += int(within.sum())
        before += int((~within).sum())
    return before, lost


def _calls(capture: Capture, functions: tuple[str, ...]) -> Columns:
    """The calls of these functions in any version, of the runtime's interface (cuda) and the driver's (cu)."""
    return capture.calls(*(f"{interface}{name}" for name in functions for interface in ("cuda", "cu")))


def _has_activity(process: np.ndarray, correlation: np.ndarray, activities: Activities) -> np.ndarray:
    """Whether some activity carries each (process, correlation id)."""
    found = np.zeros(len(process), bool)
    for one in np.unique(process).tolist():
        here = process == one
        found[here] = np.isin(correlation[here], activities.correlation[activities.process == one])
    return found


def _while_capturing_streams(capture: Capture, times_ns: np.ndarray, process: np.ndarray) -> np.ndarray:
    """Whether a stream of the process was being captured into a graph at each time."""
    begins, ends = _calls(capture, BEGIN_STREAM_CAPTURE), _calls(capture, END_STREAM_CAPTURE)
    inside = np.zeros(len(times_ns), bool)
    for one in np.unique(process_of(begins["thread"])).tolist():
        begun = np.sort(begins["start"][process_of(begins["thread"]) == one])
        ended = np.sort(ends["start"][process_of(ends["thread"]) == one])
        here = process == one
        inside[here] = np.searchsorted(begun, times_ns[here], "right") > np.searchsorted(ended, times_ns[here], "right")
    return inside


def _overlaps_a_done_one(launches: Columns, lone: np.ndarray, done: np.ndarray) -> np.ndarray:
    """Whether each of the calls LONE lies inside or around one of the calls DONE on its thread."""
    overlaps = np.zeros(len(lone), bool)
    for thread in np.unique(launches["thread"][lone]).tolist():
        mine = lone[launches["thread"][lone] == thread]
        others = done[launches["thread"][done] == thread]
        others = others[np.argsort(launches["start"][others])]
        starts, ends = launches["start"][others], np.append(launches["end"][others], 0)
        before = np.searchsorted(starts, launches["start"][mine], "right") - 1
        inside = (before >= 0) & (ends[before] >= launches["end"][mine])
        around = np.searchsorted(starts, launches["start"][mine]) < np.searchsorted(starts, launches["end"][mine])
        overlaps[launches["thread"][lone] == thread] = inside | around
    return overlaps
