"""The time of the host by thread, phase or range, and function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.keys import compact
from kernel_tables.host.events import SAMPLE, SOURCES, Events, read_events
from kernel_tables.intervals import Intervals, difference, union
from kernel_tables.reading.global_ids import process_number, process_of, thread_number
from kernel_tables.views.phases import phases_and_parts

if TYPE_CHECKING:
    import pandas as pd

BY = ("phase", "range")
NO_CALL = "(in no call)"  # Python, the dispatcher, and what no traced call covers
COLUMNS = ["process", "thread", "where", "source", "function", "calls", "time_ns", "us_per_launch", "samples"]


def host_table(trace: CaptureArrays, by: str = "phase", step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase (BY "range": innermost range), source and function that was called there.

    `time_ns` is the time in which the thread was in such a call, once where calls nest; of a phase also what it was in
    no call at all. `us_per_launch` is that over the activities launched in the phase; samples have a number, no time.
    """
    import pandas as pd

    events = read_events(trace)
    labels = np.array(phases_and_parts(events.paths, step_name)[BY.index(by)], object)
    launches = _launches(trace, by, step_name)
    rows = list(_function_rows(events, labels[events.path], launches))
    if by == "phase":
        rows += _rows_in_no_call(trace, events, labels[events.path], launches, step_name)
    trace.capture.require_sound()
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"us_per_launch": "float64", "time_ns": "Int64"})
    order = ["process", "thread", "where", "time_ns", "samples", "function"]
    return table.sort_values(order, ascending=[True] * 3 + [False] * 2 + [True], ignore_index=True)


def sources_of(table: pd.DataFrame) -> list[str]:
    """The sources that the capture held."""
    return [source for source in SOURCES if (table["source"] == source).any()]


def _function_rows(events: Events, where: np.ndarray, launches: dict[str, int]):
    names = {name: number for number, name in enumerate(dict.fromkeys(where.tolist()))}
    threads, thread = compact(events.thread)
    place = np.array([names[name] for name in where.tolist()], np.int64)
    key = ((thread * len(names) + place) * len(SOURCES) + events.source) * len(events.functions) + events.function
    order = np.argsort(key, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else []
    for group in groups:
        one, label = group[0], where[group[0]]
        source, name = SOURCES[events.source[one]], events.functions[events.function[one]]
        whose = _whose(int(threads[thread[one]]))
        if source == SAMPLE:
            yield (*whose, label, source, name, 0, None, None, len(group))
        else:
            time_ns = union(events.start_ns[group], events.end_ns[group]).total_ns
            yield (*whose, label, source, name, len(group), time_ns, _per_launch(time_ns, label, launches), 0)


def _rows_in_no_call(trace: CaptureArrays, events: Events, where: np.ndarray, launches: dict[str, int], step_name: str):
    """For every thread and phase in which it made calls: how long it was in none."""
    is_call = events.source != SOURCES.index(SAMPLE)
    phases = _PhaseRanges(trace, step_name)
    for thread in np.unique(events.thread[is_call]).tolist():
        mine = is_call & (events.thread == thread)
        busy = union(events.start_ns[mine], events.end_ns[mine])
        for label in dict.fromkeys(where[mine].tolist()):
            time_ns = difference(phases.opened(label, process_of(thread)), busy).total_ns
            if time_ns:
                yield (*_whose(thread), label, "none", NO_CALL, 0, time_ns, _per_launch(time_ns, label, launches), 0)


class _PhaseRanges:
    """The ranges that are phases themselves, not what is nested in them or has their name elsewhere."""

    def __init__(self, trace: CaptureArrays, step_name: str):
        self._ranges, self._paths = trace.range_arrays, trace.range_paths
        phases = np.array(phases_and_parts(self._paths.tuples, step_name)[0], object)
        self._phase = phases[self._paths.of_node[: len(self._ranges)]]

    def opened(self, label: str, process: int) -> Intervals:
        """The time in which this phase was open in a process."""
        ranges = self._ranges
        mine = (self._phase == label) & (ranges.name == self._paths.code(label)) & (ranges.process == process)
        return union(ranges.start_ns[mine], ranges.end_ns[mine])


def _launches(trace: CaptureArrays, by: str, step_name: str) -> dict[str, int]:
    """How many activities were launched in each phase or range."""
    labels = phases_and_parts(trace.range_paths.tuples, step_name)[BY.index(by)]
    counts = np.bincount(trace.activity_path, minlength=len(labels))
    launches: dict[str, int] = {}
    for label, count in zip(labels, counts.tolist(), strict=True):
        launches[label] = launches.get(label, 0) + count
    return launches


def _per_launch(time_ns: int, label: str, launches: dict[str, int]) -> float | None:
    return time_ns / 1e3 / launches[label] if launches.get(label) else None


def _whose(thread: int) -> tuple[int, int]:
    return process_number(thread), thread_number(thread)
