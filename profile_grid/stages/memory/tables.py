"""The tables of the memory stage of one run, and whether its history is complete."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cs336_model.arithmetic.flops import shape_of
from cs336_model.arithmetic.memory import estimated_peak_bytes, saved_activation_bytes
from cs336_model.ranges import BACKWARD, PHASES_OF_MODE
from profile_grid.host.processes.ranks import rank_filename
from profile_grid.results.results import COMPLETE, INCOMPLETE, OUT_OF_MEMORY, StageResult
from profile_grid.results.run_tables import RunTables, status_without_tables, tables_status
from profile_grid.stages.memory import block_tables, failure_tables
from profile_grid.stages.memory import usage_tables as tables
from profile_grid.stages.memory.history import AllocationHistory, categories_of, live_bytes, names_of, read_history
from profile_grid.stages.memory.usage_tables import MEMORY_MOMENTS
from profile_grid.stages.memory.usage_tables import TABLES as USAGE_TABLES
from profile_grid.study.stages import MEMORY

(HISTORY,) = MEMORY.files
TABLES = (*USAGE_TABLES, failure_tables.MEMORY_FAILED, block_tables.MEMORY_BLOCKS, block_tables.MODULE_DTYPES)
COUNTERS = ("requested_peak", "allocated_peak", "reserved_peak", "driver_used")


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's memory stage and its tables: of the first rank, but `memory_moments` of all. No tables
    unless every history is complete."""
    moments = []
    for rank in reversed(range(len(result.facts.get("ranks") or [HISTORY]))):
        path = folder / rank_filename(HISTORY, rank)
        if status := status_without_tables(result, path, "history"):
            failure = _failure(result, folder) if status["status"] == OUT_OF_MEMORY else {}
            return RunTables(status, failure)
        status, made = tables_of_history(read_history(path), result.program.spec)
        if not made:
            return RunTables(status, made)
        moments.insert(0, made["memory_moments"].assign(rank=rank))
    return RunTables(status, made | {"memory_moments": pd.concat(moments, ignore_index=True)[MEMORY_MOMENTS.names]})


def tables_of_history(history: AllocationHistory, program: dict) -> RunTables:
    """`run_tables` for a history that is already read. It is complete if its replay reaches the peak of the allocator,
    to the byte."""
    category = categories_of(history)
    live = live_bytes(history, category)
    if reason := _missing(history, live):
        return RunTables(tables_status(INCOMPLETE, reason), {})
    made_tables = {
        "memory_phases": tables.phases_table(history, live),
        "memory_moments": tables.moments_table(history, live).assign(rank=0)[MEMORY_MOMENTS.names],
        "memory_activations": tables.activations_table(history, category),
        "memory_largest": tables.largest_table(history, names_of(category), tables.fullest_of_last_step(history, live)),
        "memory_timeline": tables.timeline_table(history, live),
        "memory_totals": _totals(history, program),
        "memory_blocks": block_tables.blocks_table(history, category, live),
        "module_dtypes": block_tables.dtypes_table(history),
    }
    return RunTables(tables_status(COMPLETE), made_tables)


def _missing(history: AllocationHistory, live: np.ndarray) -> str | None:
    """Why the history is incomplete: its replay does not reach the allocator's peak; None if it does."""
    peak, counted = int(live.sum(axis=1).max(initial=0)), history.counters["requested_peak"]
    if peak == counted:
        return None
    return f"the replay of its allocations reaches {peak} bytes, the allocator counted {counted}: some are missing"


def _failure(result: StageResult, folder: Path) -> dict[str, pd.DataFrame]:
    """The table of what was live when memory ran out, if there is a complete history up to then."""
    history = read_history(folder / HISTORY)
    if history is None or _missing(history, live_bytes(history, categories_of(history))):
        return {}
    trains = BACKWARD in PHASES_OF_MODE[result.program.spec["dimensions"]["mode"]]
    return {"memory_failed": failure_tables.failure_table(history, trains)}


def _totals(history: AllocationHistory, program: dict) -> pd.DataFrame:
    """One row: numbers of the allocator and the driver, and estimates from the shapes."""
    shape, dimensions = shape_of(program), program["dimensions"]
    shape = shape if dimensions["gpus"] == 1 else None  # the estimate knows of no other process
    trains = BACKWARD in PHASES_OF_MODE[dimensions["mode"]]
    row = {f"{name}_bytes": history.counters[name] for name in COUNTERS} | {
        "estimated_peak_bytes": shape and estimated_peak_bytes(shape, dimensions["mode"], dimensions),
        "estimated_activation_bytes": saved_activation_bytes(shape, dimensions) if shape and trains else None,
        "events": history.events,
        "not_seen": "; ".join(history.cannot),
    }
    return tables.MEMORY_TOTALS.table([row], of_a_run=True)
