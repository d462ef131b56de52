"""One measured step of one run on a time axis: its ranges, the API calls that launched, and what ran on the device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kernel_tables.attribution.paths import PATH_SEPARATOR
from kernel_tables.trace import Trace
from profile_grid.tables.names import MEASURE, STEP

RANGE, LAUNCH, KERNEL = "range", "launch", "kernel"
COLUMNS = ["run", "track", "lane", "depth", "name", "start_ns", "end_ns", "class", "path"]


def empty_timeline() -> pd.DataFrame:
    """The table without rows: what a run without a whole capture has."""
    return pd.DataFrame({name: pd.Series(dtype="int64" if name.endswith("_ns") else "str") for name in COLUMNS})


def timeline(trace: Trace, run: str) -> pd.DataFrame:
    """One row per range, launching API call and device activity of the middle measured step.

    Times are nanoseconds from the step's begin; `lane` is the thread, or the stream of the device; `depth` counts the
    ranges around a range, 0 elsewhere; `path` joins the range names of an activity with " > ".
    """
    instances = trace.range_instances()
    measured = np.array([MEASURE in path for path in trace.paths], dtype=bool)
    steps = instances[(instances["name"] == STEP) & measured[instances["path_id"]]].sort_values("start_ns")
    if steps.empty:
        return empty_timeline()
    step = steps.iloc[len(steps) // 2]
    table = pd.concat([_ranges(trace, instances, step), *_device(trace, int(step["instance"]))], ignore_index=True)
    times = {name: table[name].astype("int64") - int(step["start_ns"]) for name in ("start_ns", "end_ns")}
    return table.assign(run=run, **times)[COLUMNS].sort_values(["track", "start_ns"], kind="stable", ignore_index=True)


def _ranges(trace: Trace, instances: pd.DataFrame, step: pd.Series) -> pd.DataFrame:
    inside = (instances["start_ns"] >= step["start_ns"]) & (instances["end_ns"] <= step["end_ns"])
    own = instances[inside & (instances["process"] == step["process"])]
    joined = np.array([PATH_SEPARATOR.join(path) for path in trace.paths], dtype=object)
    depth = np.array([len(path) for path in trace.paths])[own["path_id"]]
    return pd.DataFrame(
        {
            "track": RANGE,
            "lane": _thread_names(own["thread"], step["thread"]),
            "depth": depth - depth.min(),
            "name": own["name"].astype("str"),
            "start_ns": own["start_ns"],
            "end_ns": own["end_ns"],
            "class": "",
            "path": joined[own["path_id"]],
        }
    )


def _device(trace: Trace, step: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The launching calls, and the activities, of the kernels and memory operations launched inside the step."""
    activities = trace.activities()
    chosen = np.asarray(trace.enclosing(STEP)) == step
    own = activities[chosen]
    joined = np.array([PATH_SEPARATOR.join(path) for path in trace.paths], dtype=object)
    shared = {
        "depth": 0,
        "name": own["name"].astype("str"),
        "class": own["class"].astype("str"),
        "path": joined[own["path_id"]],
    }
    row = trace.gpu_activities.launch_row[chosen]
    threads = _thread_names(own["thread"], own["thread"].mode().iloc[0] if len(own) else 0)
    ends_ns, calls = trace.capture.call_ends_and_names()
    launches = {
        "track": LAUNCH,
        "lane": threads,
        "name": [calls[number] for number in row],
        "start_ns": own["launch_ns"].to_numpy("int64"),
        "end_ns": np.asarray(ends_ns)[row],
    }
    streams = [f"stream {stream}" for stream in own["stream"]]
    ran = {"track": KERNEL, "lane": streams, "start_ns": own["start_ns"], "end_ns": own["end_ns"]}
    return pd.DataFrame(shared | launches, index=own.index), pd.DataFrame(shared | ran, index=own.index)


def _thread_names(threads: pd.Series, main: int) -> list[str]:
    """Thread ids as "main thread", "thread 2", ...: ids of a process say nothing to a reader."""
    numbers = {main: 1}
    for thread in threads:
        numbers.setdefault(thread, len(numbers) + 1)
    return ["main thread" if numbers[thread] == 1 else f"thread {numbers[thread]}" for thread in threads]
