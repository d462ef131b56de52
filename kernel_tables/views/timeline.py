"""Ranges, launches and activities as rows with a start and an end."""

import numpy as np
import pandas as pd

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.launches import NO_LAUNCH

RANGE, LAUNCH, KERNEL = TRACKS = ("range", "launch", "kernel")
NOWHERE = -1


def inside_step(trace: CaptureArrays, step_name: str, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the ranges of its process inside a step, with the step, and of the activities launched in it."""
    ranges = trace.range_arrays
    inside = (ranges.start_ns >= ranges.start_ns[step]) & (ranges.end_ns <= ranges.end_ns[step])
    activities = np.flatnonzero(trace.enclosing(step_name) == step)
    return np.flatnonzero(inside & (ranges.process == ranges.process[step])), activities


def timeline_rows(trace: CaptureArrays, ranges: np.ndarray, activities: np.ndarray) -> pd.DataFrame:
    """One row per range, per call that launched some of the activities, and per activity, given by their numbers.

    Columns: track (one of TRACKS); thread (global id), device, stream, -1 if it has none; depth (how many of these
    ranges are around a range, else 0); name; class ("" if it is not an activity); path_id (index into `trace.paths`,
    with the name of a range at the end); start_ns, end_ns; call (the row of a call, else -1). Operators of a program on
    the processor have no calls. Raises ImpossibleCapture for an impossible capture.
    """
    trace.require_possible()
    calls = np.empty(0, np.int64) if trace.is_cpu_only else activities
    tables = [range_rows(trace, ranges), call_rows(trace, calls), _activity_rows(trace, activities)]
    return pd.concat(tables, ignore_index=True)


def range_rows(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    """The rows of `timeline_rows` for these ranges."""
    ranges, paths = trace.range_arrays, trace.range_paths
    path_id = paths.of_node[rows]
    depth = np.array([len(paths.tuples[path]) for path in path_id.tolist()], np.int64)
    return pd.DataFrame(
        {
            "track": RANGE, "thread": ranges.thread[rows], "device": NOWHERE, "stream": NOWHERE,
            "depth": depth - depth.min(initial=depth.max(initial=0)),
            "name": [paths.tuples[path][-1] for path in path_id.tolist()], "class": "", "path_id": path_id,
            "start_ns": ranges.start_ns[rows], "end_ns": ranges.end_ns[rows], "call": NO_LAUNCH,
        }
    )  # fmt: skip


def call_rows(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    """The rows of `timeline_rows` for the calls that launched these activities."""
    activities = trace.gpu_activities
    launched = rows[activities.launch_row[rows] != NO_LAUNCH]
    calls, first = np.unique(activities.launch_row[launched], return_index=True)
    rows = launched[first]
    ends_ns, names = trace.capture.call_ends_and_names()
    return pd.DataFrame(
        {
            "track": LAUNCH, "thread": activities.thread[rows], "device": NOWHERE, "stream": NOWHERE, "depth": 0,
            "name": [names[call] for call in calls.tolist()], "class": "", "path_id": trace.launch_path[rows],
            "start_ns": activities.launch_ns[rows], "end_ns": ends_ns[calls], "call": calls,
        }
    )  # fmt: skip


def _activity_rows(trace: CaptureArrays, rows: np.ndarray) -> pd.DataFrame:
    activities, classes = trace.gpu_activities, trace.activity_classes
    codes = activities.name[rows].tolist()
    return pd.DataFrame(
        {
            "track": KERNEL, "thread": NOWHERE, "device": trace.places["device"][rows],
            "stream": trace.places["stream"][rows], "depth": 0, "name": [activities.names[code] for code in codes],
            "class": [classes[code] for code in codes], "path_id": trace.activity_path[rows],
            "start_ns": activities.start_ns[rows], "end_ns": activities.end_ns[rows], "call": NO_LAUNCH,
        }
    )  # fmt: skip
