"""One measured step of a run, of all its ranks, on a time axis: ranges, launching calls, and what ran on a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kernel_tables.attribution.clocks import offsets_ns
from kernel_tables.attribution.path_text import as_path
from kernel_tables.trace import Trace
from profile_grid.tables.names import MEASURE, STEP

RANGE, LAUNCH, KERNEL = "range", "launch", "kernel"
COLUMNS = ["run", "track", "lane", "depth", "name", "start_ns", "end_ns", "class", "path"]


def empty_timeline() -> pd.DataFrame:
    """The table without rows: what a run without a whole capture has."""
    return pd.DataFrame({name: pd.Series(dtype="int64" if name.endswith("_ns") else "str") for name in COLUMNS})


def timeline(traces: Sequence[Trace], run: str) -> pd.DataFrame:
    """One row per range, launching API call and device activity of the middle measured step.

    Times are nanoseconds from the step's begin; `lane` is the thread, or the stream of the device; `depth` counts the
    ranges around a range, 0 elsewhere; `path` joins the range names of an activity with " > ". Of several ranks, 0
    first, times are from the first begin, on clocks that are aligned for this picture alone; a lane is "rank 0: stream
    7", and API calls are left out.
    """
    begun = [_middle_step(trace) for trace in traces]
    if not traces or any(step is None for step in begun):
        return empty_timeline()
    offsets, _ = offsets_ns(traces, STEP)
    first_ns = min(int(step["start_ns"]) + offset for step, offset in zip(begun, offsets, strict=True))
    several = len(traces) > 1
    tables = [
        _placed(_of_step(trace, step, with_calls=not several), offset - first_ns, f"rank {rank}: " if several else "")
        for rank, (trace, step, offset) in enumerate(zip(traces, begun, offsets, strict=True))
    ]
    table = pd.concat(tables, ignore_index=True).assign(run=run)[COLUMNS]
    return table.sort_values(["track", "start_ns"], kind="stable", ignore_index=True)


def _middle_step(trace: Trace) -> pd.Series | None:
    """The range of the middle measured step; None without steps."""
    instances = trace.range_instances()
    measured = np.array([MEASURE in path for path in trace.paths], dtype=bool)
    steps = instances[(instances["name"] == STEP) & measured[instances["path_id"]]].sort_values("start_ns")
    return steps.iloc[len(steps) // 2] if len(steps) else None


def _of_step(trace: Trace, step: pd.Series, with_calls: bool) -> pd.DataFrame:
    launches, ran = _device(trace, int(step["instance"]))
    tables = [_ranges(trace, trace.range_instances(), step), *([launches] if with_calls else []), ran]
    return pd.concat(tables, ignore_index=True)


def _placed(table: pd.DataFrame, offset_ns: int, of_rank: str) -> pd.DataFrame:
    """The rows on the axis of the picture."""
    times = {name: table[name].astype("int64") + offset_ns for name in ("start_ns", "end_ns")}
    return table.assign(**times, lane=of_rank + table["lane"].astype("str"))


def _ranges(trace: Trace, instances: pd.DataFrame, step: pd.Series) -> pd.DataFrame:
    inside = (instances["start_ns"] >= step["start_ns"]) & (instances["end_ns"] <= step["end_ns"])
    own = instances[inside & (instances["process"] == step["process"])]
    written = np.array([as_path(path) for path in trace.paths], dtype=object)
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
            "path": written[own["path_id"]],
        }
    )


def _device(trace: Trace, step: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The launching calls, and the activities, of the kernels and memory operations launched inside the step."""
    activities = trace.activities()
    chosen = np.asarray(trace.enclosing(STEP)) == step
    own = activities[chosen]
    written = np.array([as_path(path) for path in trace.paths], dtype=object)
    shared = {
        "depth": 0,
        "name": own["name"].astype("str"),
        "class": own["class"].astype("str"),
        "path": written[own["path_id"]],
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
