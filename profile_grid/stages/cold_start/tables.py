"""Where the time of a process's first step goes, compared with later steps: module loading, memory, first launches.

Every nanosecond of a step has one cause: the first in the table that any thread is in. So they add up to the step.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables import errors, intervals
from kernel_tables.diagnosis.calls import ALLOCATION, LAUNCH, WAIT, Calls
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.trace import Trace
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageResult
from profile_grid.results.run_tables import RunTables, status_without_tables, tables_status
from profile_grid.study import stages, table_spec
from profile_grid.tables.conservation import require_same

(SQLITE,) = stages.COLD_START.files
LOADING = re.compile(r"cu(da)?(Module|Library|Link|Kernel(?!\w*Launch))")
OF_THE_HOST = re.compile(r"cuda(HostAlloc|MallocHost|FreeHost|HostRegister)|cuMem(HostAlloc|AllocHost|HostRegister)")
NO_CALL, NO_OPERATOR = "time between calls (Python, dispatcher, libraries that choose kernels)", "no operator"


class CauseTimes(NamedTuple):
    """The intervals of a cause of time in a step."""

    cause: str
    start_ns: np.ndarray
    end_ns: np.ndarray


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's cold start and its table; no table unless the capture has several steps."""
    if status := status_without_tables(result, folder / SQLITE):
        return RunTables(status, {})
    try:
        with Trace(folder / SQLITE, extra_rules) as trace:
            scope = Scope(trace)
            if len(scope.steps) < 2 or not (scope.trace.is_cpu_only or scope.has_calls):
                raise errors.TraceError("the capture does not have the calls of two steps")
            return RunTables(tables_status(COMPLETE), {"first_step": first_step_table(scope)})
    except errors.TraceError as error:
        return RunTables(tables_status(INCOMPLETE, str(error)), {})


def first_step_table(scope: Scope) -> pd.DataFrame:
    """One row per cause: its time and calls in the first step, and their means in the later steps."""
    causes, ranges = list(_operators(scope) if scope.trace.is_cpu_only else _calls(scope)), scope.trace.range_arrays
    remainder = NO_OPERATOR if scope.trace.is_cpu_only else NO_CALL
    windows = [(int(ranges.start_ns[step]), int(ranges.end_ns[step])) for step in scope.steps]
    steps = [_step_causes(causes, remainder, *window) for window in windows]
    for (start, end), step in zip(windows, steps, strict=True):
        require_same("time of a step by cause", sum(ns for ns, _ in step.values()), end - start)
    rows = []
    for cause, (first_ns, first_calls) in steps[0].items():
        later_ns, later_calls = np.mean([step[cause] for step in steps[1:]], axis=0)
        rows.append((cause, first_ns / 1e6, later_ns / 1e6, (first_ns - later_ns) / 1e6, first_calls, later_calls))
    return FIRST_STEP.table(rows, of_a_run=True)


def _step_causes(causes: list[CauseTimes], remainder: str, start: int, end: int) -> dict[str, tuple[int, int]]:
    """(nanoseconds, calls) by cause, in a window of time."""
    uncovered, by_cause = intervals.Intervals(np.array([start]), np.array([end])), {}
    for cause, starts, ends in causes:
        is_inside = (starts >= start) & (starts < end)
        covered = intervals.union(starts[is_inside], np.minimum(ends[is_inside], end))
        by_cause[cause] = intervals.intersection(uncovered, covered).total_ns, int(is_inside.sum())
        uncovered = intervals.difference(uncovered, covered)
    return by_cause | {remainder: (uncovered.total_ns, 0)}


def _calls(scope: Scope) -> Iterator[CauseTimes]:
    """The CUDA API calls by cause; inner calls come before outer ones."""
    calls = scope.calls
    loading, host = (_named(calls, pattern) for pattern in (LOADING, OF_THE_HOST))
    first = _first_launches(scope, len(calls))
    masks = {
        "loading of modules": loading,
        "memory of the host": host,
        "memory of the GPU": calls.kind == ALLOCATION,
        "first launch of a kernel": first,
        "other launches": calls.kind == LAUNCH,
        "waiting": calls.kind == WAIT,
    }
    unassigned = np.ones(len(calls), bool)
    for cause, mask in masks.items():
        yield CauseTimes(cause, calls.start_ns[mask & unassigned], calls.end_ns[mask & unassigned])
        unassigned &= ~mask
    yield CauseTimes("other calls", calls.start_ns[unassigned], calls.end_ns[unassigned])


def _operators(scope: Scope) -> Iterator[CauseTimes]:
    """On a CPU: operators that run for the first time, and all others."""
    activities = scope.activities
    order = np.argsort(activities.start_ns, kind="stable")
    first = np.zeros(len(activities), bool)
    first[order[np.unique(activities.name[order], return_index=True)[1]]] = True
    for cause, mask in (("first run of an operator", first), ("other operators", ~first)):
        yield CauseTimes(cause, activities.start_ns[mask], activities.end_ns[mask])


def _first_launches(scope: Scope, count: int) -> np.ndarray:
    """Whether each API call is the first that launches a kernel of its name."""
    activities, first = scope.activities, np.zeros(count, bool)
    launched = np.flatnonzero(activities.has_launch)
    order = launched[np.argsort(activities.launch_ns_of(launched), kind="stable")]
    first[activities.launch_row[order[np.unique(activities.name[order], return_index=True)[1]]]] = True
    return first


def _named(calls: Calls, pattern: re.Pattern) -> np.ndarray:
    matches = np.array([bool(pattern.match(name)) for name in calls.functions], bool)
    return matches[calls.function]


FIRST_STEP = table_spec.TableSpec(
    "first_step",
    "One row per run with the stage cold_start and cause of time in its first step; the causes add up to the step",
    table_spec.columns("""
    cause | text | | the first of these that any thread was in
    first_ms | float | ms | in the very first step of the process, as captured
    later_ms | float | ms | mean over the later captured steps
    extra_ms | float | ms | first_ms − later_ms
    first_calls | float | | API calls in the first step; on a CPU operators
    later_calls | float | | mean over the later captured steps
"""),
)
TABLES = (FIRST_STEP,)
