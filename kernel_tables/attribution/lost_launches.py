"""Launches whose kernels are missing, and kernels whose launches are: what a capture lost."""

from __future__ import annotations

import numpy as np

from kernel_tables.attribution.activities import Activities
from kernel_tables.attribution.keys import matched
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
    numbered = np.flatnonzero(calls["correlation"] >= 0)
    before = lost = 0
    for positions, own_calls in matched(activities.process[without], call_process[numbered]):
        mine, own_calls = without[positions], numbered[own_calls]
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
    for here, theirs in matched(process, activities.process):
        found[here] = np.isin(correlation[here], activities.correlation[theirs])
    return found


def _while_capturing_streams(capture: Capture, times_ns: np.ndarray, process: np.ndarray) -> np.ndarray:
    """Whether a stream of the process was being captured into a graph at each time."""
    begun, ended = (_in_order(_calls(capture, calls)) for calls in (BEGIN_STREAM_CAPTURE, END_STREAM_CAPTURE))
    inside = np.zeros(len(times_ns), bool)
    for here, begins in matched(process, process_of(begun["thread"])):
        if len(begins):
            ends = ended["start"][process_of(ended["thread"]) == process[here[0]]]
            open_ones = np.searchsorted(begun["start"][begins], times_ns[here], "right")
            inside[here] = open_ones > np.searchsorted(ends, times_ns[here], "right")
    return inside


def _in_order(calls: Columns) -> Columns:
    """The calls by start."""
    order = np.argsort(calls["start"], kind="stable")
    return {name: column[order] for name, column in calls.items()}


def _overlaps_a_done_one(launches: Columns, lone: np.ndarray, done: np.ndarray) -> np.ndarray:
    """Whether each of the calls LONE lies inside or around one of the calls DONE on its thread."""
    overlaps = np.zeros(len(lone), bool)
    starts, ends, threads = launches["start"], launches["end"], launches["thread"]
    done = done[np.argsort(starts[done], kind="stable")]
    for positions, others in matched(threads[lone], threads[done]):
        mine, others = lone[positions], done[others]
        before = np.searchsorted(starts[others], starts[mine], "right") - 1
        inside = (before >= 0) & (np.append(ends[others], 0)[before] >= ends[mine])
        around = np.searchsorted(starts[others], starts[mine]) < np.searchsorted(starts[others], ends[mine])
        overlaps[positions] = inside | around
    return overlaps
