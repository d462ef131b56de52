"""What the host does in each phase of a step, by thread: launching, waiting, calls of the OS, and no call.

On every thread with calls in a phase, their exclusive times and the time in no call add up to the phase exactly.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kernel_tables.diagnosis.calls import ALLOCATION, COPY, LAUNCH, WAIT, kind_of
from kernel_tables.host import CUDA, OS_RUNTIME, PYTHON
from kernel_tables.host.table import host_table
from kernel_tables.trace import Trace
from profile_grid.results.results import COMPLETE, StageResult
from profile_grid.results.run_tables import RunTables, status_without_tables, tables_status
from profile_grid.stages.capture.reading import tables_of_capture
from profile_grid.stages.capture.step_tables import measured_ranges, phase_instances
from profile_grid.study import stages, table_spec
from profile_grid.tables import conservation, names

(SQLITE,) = stages.HOST_TRACE.files
# what a thread is doing: values of the column `doing`
LAUNCHING, OS_CALLS, NO_CALL, STACK = "launching", "in the OS runtime", "in no call", "Python stack"
CUDA_CALLS = {LAUNCH: LAUNCHING, WAIT: "waiting for the GPU", ALLOCATION: "allocating", COPY: "copying"}
OTHER_CUDA_CALLS = "in other CUDA calls"


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's host trace and its table; no table unless the trace is complete."""
    if status := status_without_tables(result, folder / SQLITE, "trace"):
        return RunTables(status, {})

    def tables_of(trace: Trace) -> RunTables:
        table = host_time(trace)
        warnings = _absent_sources(table, result.specification["sources"])
        return RunTables(tables_status(COMPLETE, warnings=warnings), {"host_time": table})

    return tables_of_capture(folder / SQLITE, extra_rules, tables_of)


def host_time(trace: Trace) -> pd.DataFrame:
    """One row per phase, thread, kind of call (`doing`) and function: means over the steps, but sums of samples."""
    wall_ns_by_phase, steps = _wall_ns_by_phase(trace)
    rows = host_table(trace, step_name=names.STEP).rename(columns={"where": "phase"})
    rows = rows[rows["phase"].isin(wall_ns_by_phase)]  # without those outside of the phases
    for (_, _, phase), own_ns in rows.groupby(["process", "thread", "phase"])["own_ns"].sum().items():
        if own_ns:  # a thread with samples, but without calls in this phase, has no times
            conservation.require_same(f"time of a thread in {phase}", own_ns, wall_ns_by_phase[phase])
    table = rows.assign(
        thread=rows.groupby(["process", "thread"]).ngroup(),
        doing=[_doing(source, function) for source, function in zip(rows["source"], rows["function"], strict=True)],
        launches=rows["launches"] / steps,
        calls=rows["calls"] / steps,
        own_ms=rows["own_ns"].astype("float64") / 1e6 / steps,
        estimated_ms=rows["estimated_ns"].astype("float64") / 1e6 / steps,
    )
    launching_thread = table["phase"].map(_launching_threads(table))
    table = table.assign(launches_most=launching_thread == table["thread"])
    return HOST_TIME.typed(table[HOST_TIME.names], nullable=False).reset_index(drop=True)


def _wall_ns_by_phase(trace: Trace) -> tuple[dict[str, int], int]:
    """(nanoseconds of each phase in all measured steps together, number of these steps)."""
    ranges = measured_ranges(trace)
    phases = phase_instances(ranges)
    wall_ns = (phases["end_ns"] - phases["start_ns"]).groupby(phases["phase"], sort=False).sum()
    return {phase: int(ns) for phase, ns in wall_ns.items()}, int(ranges["step"].max()) + 1


def _doing(source: str, function: str) -> str:
    """What a thread is doing in a function of this source of events; sources are named in kernel_tables.host."""
    if source == CUDA:
        return CUDA_CALLS.get(kind_of(function), OTHER_CUDA_CALLS)
    return {OS_RUNTIME: OS_CALLS, PYTHON: STACK}.get(source, NO_CALL)


def _launching_threads(table: pd.DataFrame) -> dict[str, int]:
    """By phase, the thread that makes most of the launching calls; a phase without such calls is left out."""
    launching = table[table["doing"] == LAUNCHING]
    calls = launching.pivot_table(index="thread", columns="phase", values="calls", aggfunc="sum")
    return calls.idxmax().to_dict()


def _absent_sources(table: pd.DataFrame, sources: Sequence[str]) -> list[str]:
    """A warning for each requested source without rows in the table."""
    event_names = {OS_CALLS: "calls of the OS runtime", STACK: "Python stacks"}
    requested = [_doing(source, function="") for source in sources]  # the same for all functions of these sources
    present = set(table["doing"])
    return [f"the trace of the host has no {event_names[doing]}" for doing in requested if doing not in present]


HOST_TIME = table_spec.TableSpec(
    "host_time",
    "One row per run with the stage host_trace, phase of a step, thread and function; means over the traced steps. On"
    " every thread that makes calls in a phase, own_ms adds up to the phase",
    table_spec.columns("""
    phase | text | | range directly inside step
    thread | int | | number of the thread, from 0; 0 is the main thread if it makes calls
    launches_most | bool | | whether it makes most of the launching calls in the phase
    doing | text | | a kind of CUDA call, in the OS runtime (calls of 1 µs and longer), in no call, or a Python stack
    function | text | | the called function; for a stack, its innermost function and module
    launches | float | | kernels and memory operations that all threads launch in the phase, per step
    calls | float | | calls per step
    own_ms | float | ms | time in such calls per step, without inner calls; the trace slows the host down
    samples | int | | sampled stacks, about one per millisecond, in all traced steps
    samples_in_calls | int | | of these, samples while the thread was in a traced call
    estimated_ms | float | ms | estimated time in the function outside of calls, per step: samples outside calls × \
        time between samples
"""),
)
TABLES = (HOST_TIME,)
