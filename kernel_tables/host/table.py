"""The time of the host by thread, phase or range, and function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from kernel_tables.attribution.arrays import factorize, grouped
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import phases_and_parts
from kernel_tables.host import SOURCES
from kernel_tables.host.events import Events, read_events
from kernel_tables.host.phases import OpenPhases
from kernel_tables.host.thread import FIGURES, NO_CALL, ThreadHostTime
from kernel_tables.reading.global_ids import process_number, thread_number

BY = PHASE, RANGE = ("phase", "range")
COLUMNS = ["process", "thread", "where", "source", "function", *FIGURES]


def host_table(trace: CaptureArrays, by: str = PHASE, step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase (BY "range": innermost range), source, and function that was called there.

    `time_ns` is the time in which the thread was in such a call, `own_ns` that without the calls inside it: on a thread
    that makes calls in a phase, own_ns adds up to the phase, together with the time in no call. `us_per_launch` is
    `own_ns` over the activities launched there. Samples are counted; `estimated_ns` estimates the time in that function
    and in no call: the samples outside calls times the time between two samples.
    """
    trace.require_possible()
    events = read_events(trace)
    names, table_of = _by_phase(trace, step_name) if by == PHASE else _by_range(events, step_name)
    threads, index = factorize(events.thread)
    period_ns, tables = events.period_ns(), [pd.DataFrame(columns=COLUMNS)]
    for thread, rows in zip(threads.tolist(), grouped(index, len(threads)), strict=True):
        table = table_of(ThreadHostTime(events, rows, period_ns), thread, rows)
        tables.append(table.assign(process=process_number(thread), thread=thread_number(thread)))
    return _finished(pd.concat(tables), names, events, _launches(trace, by, step_name))


TableOfThread = Callable[[ThreadHostTime, int, np.ndarray], pd.DataFrame]


def _by_phase(trace: CaptureArrays, step_name: str) -> tuple[list[str], TableOfThread]:
    """The names of the phases, and what makes the table of a thread by their numbers."""
    phases = OpenPhases(trace, step_name)
    outside = len(phases.names) - 1
    return phases.names, lambda time, thread, rows: time.by_phase(phases.of_thread(thread), outside)


def _by_range(events: Events, step_name: str) -> tuple[list[str], TableOfThread]:
    """The same by innermost range."""
    names, parts = {}, phases_and_parts(events.paths, step_name)[1]
    number = np.array([names.setdefault(part, len(names)) for part in parts], np.int64)
    return list(names), lambda time, thread, rows: time.by_range(number[events.path[rows]])


def _finished(table: pd.DataFrame, names: list[str], events: Events, launches: dict[str, int]) -> pd.DataFrame:
    """The table with names for numbers, launches and order."""
    where, function = (table[key].to_numpy(np.int64) for key in ("where", "function"))
    source = np.append(events.source_of_function, NO_CALL)[function]
    table = table.reindex(columns=COLUMNS).assign(
        where=np.array(names, object)[where] if len(table) else [],
        source=np.array([*SOURCES, "none"], object)[source],
        function=np.array([*events.functions, "(in no call)"], object)[function],
    )
    table = table.astype(dict.fromkeys(("process", "thread", "calls", "samples", "samples_in_calls"), "int64"))
    table = table.astype(dict.fromkeys(("time_ns", "own_ns", "estimated_ns"), "Int64"))
    table["launches"] = table["where"].map(launches).fillna(0).astype("int64")
    table["us_per_launch"] = table["own_ns"].astype("float64") / 1e3 / table["launches"].replace(0, np.nan)
    order = ["process", "thread", "where", "own_ns", "samples", "function"]
    return table.sort_values(order, ascending=[True] * 3 + [False] * 2 + [True], ignore_index=True)


def _launches(trace: CaptureArrays, by: str, step_name: str) -> dict[str, int]:
    """How many activities were launched in each phase or range."""
    labels = phases_and_parts(trace.range_paths.tuples, step_name)[BY.index(by)]
    counts = np.bincount(trace.launch_path, minlength=len(labels))
    return pd.Series(counts).groupby(labels).sum().to_dict()
