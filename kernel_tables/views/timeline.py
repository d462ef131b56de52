"""Ranges, launches and activities as rows with a start and an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kernel_tables.attribution.launches import NO_LAUNCH

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays

RANGE, LAUNCH, KERNEL = TRACKS = ("range", "launch", "kernel")
NOWHERE = -1


def inside_step(trace: CaptureArrays, step_name: str, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the ranges in a step, it included, of its process; and of the activities launched in it."""
    held = trace.range_arrays
    inside = (held.start_ns >= held.start_ns[step]) & (held.end_ns <= held.end_ns[step])
    activities = np.flatnonzero(trace.enclosing(step_name) == step)
    return np.flatnonzero(inside & (held.process == held.process[step])), activities


def timeline_rows(trace: CaptureArrays, ranges: np.ndarray, activities: np.ndarray) -> pd.DataFrame:
    """One row per range, per call that launched some of the activities, and per activity, of these numbers.

    Columns: track (one of TRACKS); thread (global id), device, stream, each -1 where it is none; depth (the ranges
    around a range, of these, else 0); name; class ("" for what is no activity); path_id (index into `trace.paths`, a
    range's own name last); start_ns, end_ns. Operators of a program on the processor have no calls. Raises
    ImpossibleCapture for a capture that cannot be believed.
    """
    trace.require_possible()
    return pd.concat(
        [_ranges(trace, ranges), _calls(trace, activities), _activities(trace, activities)], ignore_index=True
    )


def _ranges(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    held, paths = trace.range_arrays, trace.range_paths
    path_id = paths.of_node[rows]
    depth = np.array([len(paths.tuples[code]) for code in path_id.tolist()], np.int64)
    return pd.DataFrame(
        {
            "track": RANGE, "thread": held.thread[rows], "device": NOWHERE, "stream": NOWHERE,
            "depth": depth - depth.min(initial=depth.max(initial=0)),
            "name": [paths.tuples[code][-1] for code in path_id.tolist()], "class": "", "path_id": path_id,
            "start_ns": held.start_ns[rows], "end_ns": held.end_ns[rows],
        }
    )  # fmt: skip


def _calls(trace: CaptureArrays, activities: np.ndarray) -> pd.DataFrame:
    found = trace.gpu_activities
    launched = activities[(found.launch_row[activities] != NO_LAUNCH) & (not trace.is_cpu_only)]
    calls, first = np.unique(found.launch_row[launched], return_index=True)
    rows = launched[first]
    ends_ns, names = trace.capture.call_ends_and_names()
    return pd.DataFrame(
        {
            "track": LAUNCH, "thread": found.thread[rows], "device": NOWHERE, "stream": NOWHERE, "depth": 0,
            "name": [names[call] for call in calls.tolist()], "class": "", "path_id": trace.activity_path[rows],
            "start_ns": found.launch_ns[rows], "end_ns": [int(ends_ns[call]) for call in calls.tolist()],
        }
    )  # fmt: skip


def _activities(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    found, classes = trace.gpu_activities, trace.activity_classes
    codes = found.name[rows].tolist()
    return pd.DataFrame(
        {
            "track": KERNEL, "thread": NOWHERE, "device": trace.places["device"][rows],
            "stream": trace.places["stream"][rows], "depth": 0, "name": [found.names[code] for code in codes],
            "class": [classes[code] for code in codes], "path_id": trace.activity_path[rows],
            "start_ns": found.start_ns[rows], "end_ns": found.end_ns[rows],
        }
    )  # fmt: skip
