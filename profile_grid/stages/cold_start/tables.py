"""Where the time of a process's first step goes, compared with later steps: module loading, memory, first launches.

Each nanosecond of a step has one cause: the first of the table that has a call of any thread at that time.
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
from profile_grid.results.results import COMPLETE, StageResult
from profile_grid.results.run_tables import RunTables, status_without_tables, tables_status
from profile_grid.stages.capture.reading import tables_of_capture
from profile_grid.study import stages, table_spec
from profile_grid.tables.conservation import require_same

(SQLITE,) = stages.COLD_START.files
MODULE_CALL = re.compile(r"cu(da)?(Module|Library|Link|Kernel(?!\w*Launch))")  # cuKernelGetFunction, not a launch
HOST_MEMORY_CALL = re.compile(
    r"cuda(HostAlloc|MallocHost|FreeHost|HostRegister)|cuMem(HostAlloc|AllocHost|HostRegister)"
)
NO_CALL, NO_OPERATOR = "time between calls (Python, dispatcher, libraries that choose kernels)", "no operator"


class CauseTimes(NamedTuple):
    """When each call of one cause starts and ends; without a GPU, each operator."""

    cause: str
    start_ns: np.ndarray
    end_ns: np.ndarray


class CauseTotal(NamedTuple):
    """The time of a cause in a step, and the number of its calls."""

    time_ns: int
    calls: int


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's cold start and its table; no table unless the capture is complete, with the calls of
    several steps."""
    if status := status_without_tables(result, folder / SQLITE):
        return RunTables(status, {})
    return tables_of_capture(folder / SQLITE, extra_rules, _tables_of_trace)


def _tables_of_trace(trace: Trace) -> RunTables:
    """`run_tables` of an open capture. Raises TraceError if it does not have the calls of two steps."""
    scope = Scope(trace)
    if len(scope.step_ranges) < 2 or not (trace.is_cpu_only or scope.has_calls):
        raise errors.TraceError("the capture does not have the calls of two steps")
    return RunTables(tables_status(COMPLETE), {"first_step": first_step_table(scope)})


def first_step_table(scope: Scope) -> pd.DataFrame:
    """One row per cause: its time and calls in the first step, and their means in the later steps."""
    is_cpu_only, ranges = scope.trace.is_cpu_only, scope.trace.range_arrays
    causes = list(_operators_by_cause(scope) if is_cpu_only else _calls_by_cause(scope))
    totals_of_steps = []
    for step in scope.step_ranges:
        start_ns, end_ns = int(ranges.start_ns[step]), int(ranges.end_ns[step])
        totals = _totals_by_cause(causes, NO_OPERATOR if is_cpu_only else NO_CALL, start_ns, end_ns)
        require_same("time of a step by cause", sum(total.time_ns for total in totals.values()), end_ns - start_ns)
        totals_of_steps.append(totals)
    rows = []
    for cause, (first_ns, first_calls) in totals_of_steps[0].items():
        later_ns, later_calls = np.mean([totals[cause] for totals in totals_of_steps[1:]], axis=0)
        extra_ns = first_ns - later_ns
        rows.append((cause, first_ns / 1e6, later_ns / 1e6, extra_ns / 1e6, first_calls, later_calls))  # of FIRST_STEP
    return FIRST_STEP.table(rows, of_a_run=True)


def _totals_by_cause(causes: list[CauseTimes], remainder: str, start_ns: int, end_ns: int) -> dict[str, CauseTotal]:
    """The totals by cause of the step from `start_ns` to `end_ns`. Each nanosecond counts for the first cause with a
    call, begun in the step, that covers it; if there is none, for the cause `remainder`."""
    uncovered = intervals.Intervals(np.array([start_ns]), np.array([end_ns]))
    totals = {}
    for cause, starts_ns, ends_ns in causes:
        is_inside = (starts_ns >= start_ns) & (starts_ns < end_ns)
        covered = intervals.union(starts_ns[is_inside], np.minimum(ends_ns[is_inside], end_ns))
        totals[cause] = CauseTotal(intervals.intersection(uncovered, covered).total_ns, int(is_inside.sum()))
        uncovered = intervals.difference(uncovered, covered)
    return totals | {remainder: CauseTotal(uncovered.total_ns, 0)}


def _calls_by_cause(scope: Scope) -> Iterator[CauseTimes]:
    """The CUDA API calls, each under the first cause that fits. Causes whose calls happen inside other calls come
    first, so that an inner call keeps its time."""
    calls = scope.calls
    masks = {
        "loading of modules": _name_matches(calls, MODULE_CALL),
        "memory of the host": _name_matches(calls, HOST_MEMORY_CALL),
        "memory of the GPU": calls.kind == ALLOCATION,
        "first launch of a kernel": _is_first_launch(scope, len(calls)),
        "other launches": calls.kind == LAUNCH,
        "waiting": calls.kind == WAIT,
        "other calls": np.ones(len(calls), bool),
    }
    is_unassigned = np.ones(len(calls), bool)
    for cause, mask in masks.items():
        yield CauseTimes(cause, calls.start_ns[mask & is_unassigned], calls.end_ns[mask & is_unassigned])
        is_unassigned &= ~mask


def _operators_by_cause(scope: Scope) -> Iterator[CauseTimes]:
    """The operators, without a GPU: those that run for the first time, and all others."""
    activities = scope.activities
    is_first = np.zeros(len(activities), bool)
    is_first[_first_by_name(activities.name, np.argsort(activities.start_ns, kind="stable"))] = True
    for cause, mask in (("first run of an operator", is_first), ("other operators", ~is_first)):
        yield CauseTimes(cause, activities.start_ns[mask], activities.end_ns[mask])


def _is_first_launch(scope: Scope, call_count: int) -> np.ndarray:
    """Mask of the API calls that are the first to launch a kernel of some name."""
    activities, is_first = scope.activities, np.zeros(call_count, bool)
    launched = np.flatnonzero(activities.has_launch)
    in_launch_order = launched[np.argsort(activities.launch_ns_of(launched), kind="stable")]
    is_first[activities.launch_row[_first_by_name(activities.name, in_launch_order)]] = True
    return is_first


def _first_by_name(names: np.ndarray, order: np.ndarray) -> np.ndarray:
    """For each name, the first of its indices in `order`, which holds indices of `names`."""
    _, first_positions = np.unique(names[order], return_index=True)
    return order[first_positions]


def _name_matches(calls: Calls, pattern: re.Pattern) -> np.ndarray:
    """Mask of the calls of functions whose names match."""
    matches = np.array([bool(pattern.match(name)) for name in calls.functions], bool)
    return matches[calls.function]


FIRST_STEP = table_spec.TableSpec(
    "first_step",
    "One row per run with the stage cold_start and cause of time in its first step; the causes add up to the step",
    table_spec.columns("""
    cause | text | | what a thread did; of several causes at the same moment, the first in the order of this table
    first_ms | float | ms | in the very first step of the process, as captured
    later_ms | float | ms | mean over the later captured steps
    extra_ms | float | ms | first_ms − later_ms
    first_calls | float | | API calls in the first step; on a CPU operators
    later_calls | float | | mean over the later captured steps
"""),
)
TABLES = (FIRST_STEP,)
