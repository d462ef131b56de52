"""One measured step of a run on a time axis: ranges, launching calls and activities of devices, of all ranks."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables.attribution.path_text import as_path
from kernel_tables.attribution.steps import clock_offsets_ns, measured_steps
from kernel_tables.trace import Trace
from kernel_tables.views.timeline import KERNEL, LAUNCH, step_contents, timeline_rows
from profile_grid.tables.names import STEP

COLUMNS = ["run", "track", "lane", "depth", "name", "start_ns", "end_ns", "class", "path"]
MAIN = "main thread"


def empty_timeline() -> pd.DataFrame:
    """The table without rows, for a run without a complete capture."""
    return pd.DataFrame(
        {name: pd.Series(dtype="int64" if name.endswith(("_ns", "depth")) else "str") for name in COLUMNS}
    )


def timeline(traces: Sequence[Trace], run: str) -> pd.DataFrame:
    """One row per range, launching API call and device activity of the middle measured step.

    Times are nanoseconds from the begin of the step. `lane` is the thread, or the stream of the device. `depth` counts
    the ranges around a range, and is 0 for everything else. `path` joins the names of the open ranges with " > ".

    `traces` has the captures of all ranks, 0 first. If there are several, times count from the step's first begin on
    any rank, on clocks that are aligned only for this; a lane is "rank 0: stream 7"; API calls are left out.
    """
    steps = [measured_steps(trace, STEP) for trace in traces]
    if not traces or not all(map(len, steps)):
        return empty_timeline()
    middle_steps = [int(rank_steps[len(rank_steps) // 2]) for rank_steps in steps]
    offsets = clock_offsets_ns(traces, STEP)
    starts = [int(trace.range_arrays.start_ns[step]) for trace, step in zip(traces, middle_steps, strict=True)]
    first_ns = min(start + offset for start, offset in zip(starts, offsets, strict=True))
    has_ranks = len(traces) > 1
    tables = [
        _aligned(_step_rows(trace, step), offset - first_ns, f"rank {rank}: " if has_ranks else "")
        for rank, (trace, step, offset) in enumerate(zip(traces, middle_steps, offsets, strict=True))
    ]
    table = pd.concat(tables, ignore_index=True).assign(run=run)[COLUMNS]
    table = table[table["track"] != LAUNCH] if has_ranks else table
    return table.sort_values(["track", "start_ns"], kind="stable", ignore_index=True)


def _step_rows(trace: Trace, step: int) -> pd.DataFrame:
    """The rows of a step, with names of lanes and paths as texts. Threads get numbers, since their ids tell nothing."""
    table = timeline_rows(trace, *step_contents(trace, STEP, step))
    thread_names = {int(trace.range_arrays.thread[step]): MAIN}
    for thread in table.loc[table["track"] != KERNEL, "thread"]:
        thread_names.setdefault(thread, f"thread {len(thread_names) + 1}")
    streams = "stream " + table["stream"].astype("str")
    lane = streams.where(table["track"] == KERNEL, table["thread"].map(thread_names))
    return table.assign(lane=lane, path=[as_path(trace.paths[code]) for code in table["path_id"]])


def _aligned(table: pd.DataFrame, offset_ns: int, rank_prefix: str) -> pd.DataFrame:
    """The rows with this offset added to their times, and this prefix before their lanes."""
    times = {name: table[name].astype("int64") + offset_ns for name in ("start_ns", "end_ns")}
    return table.assign(**times, lane=rank_prefix + table["lane"].astype("str"))
