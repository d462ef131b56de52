"""The tables of one run's memory stage, and whether its history is whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cs336_model.arithmetic.memory import estimated_peak_bytes, saved_activation_bytes
from cs336_model.arithmetic.own_model import shape_of
from cs336_model.ranges import BACKWARD, PHASES_OF_MODE
from profile_grid.results.results import COMPLETE, INCOMPLETE, OUT_OF_MEMORY, StageResult
from profile_grid.results.run_tables import RunTables, status_without_tables, tables_status
from profile_grid.stages.memory import usage_tables as tables
from profile_grid.stages.memory.categories import CATEGORIES, categories_of, live_bytes, names_of
from profile_grid.stages.memory.failure import empty_failures, failure_table
from profile_grid.stages.memory.history import AllocationHistory, read_history
from profile_grid.study.described import Described, columns
from profile_grid.study.stages import MEMORY

(HISTORY,) = MEMORY.files
COUNTERS = ("requested_peak", "allocated_peak", "reserved_peak", "driver_used")
TOTALS = [
    *(f"{name}_bytes" for name in COUNTERS), "estimated_peak_bytes", "estimated_activation_bytes", "events", "not_seen",
]  # fmt: skip
TOTAL_TYPES = dict.fromkeys(TOTALS, "Int64") | {"not_seen": "str"}


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's memory stage and its tables, which are empty unless the history is whole."""
    if status := status_without_tables(result, folder / HISTORY, "history"):
        failure = _failure(result, folder) if status["status"] == OUT_OF_MEMORY else {}
        return RunTables(status, empty_run_tables() | failure)
    return tables_of_history(read_history(folder / HISTORY), result.program.spec)


def tables_of_history(history: AllocationHistory, program: dict) -> RunTables:
    """The same of a history that was read. It is whole where its replay reaches the peak that the allocator counted, to
    the byte."""
    category = categories_of(history)
    live = live_bytes(history, category)
    if reason := _missing(history, live):
        return RunTables(tables_status(INCOMPLETE, reason), empty_run_tables())
    made = {
        "memory_phases": tables.phases_table(history, live),
        "memory_activations": tables.activations_table(history, category),
        "memory_largest": tables.largest_table(history, names_of(category), tables.fullest_of_last_step(history, live)),
        "memory_timeline": tables.timeline_table(history, live),
        "memory_totals": _totals(history, program),
    }
    return RunTables(tables_status(COMPLETE), empty_run_tables() | made)


def _missing(history: AllocationHistory, live: np.ndarray) -> str | None:
    """Why the history is not whole: its replay does not reach the allocator's own peak; None where it does."""
    peak, counted = int(live.sum(axis=1).max(initial=0)), history.counters["requested_peak"]
    if peak == counted:
        return None
    return f"the replay of its allocations reaches {peak} bytes, the allocator counted {counted}: some are missing"


def _failure(result: StageResult, folder: Path) -> dict[str, pd.DataFrame]:
    """What was live when memory ran out, where the history up to then is there and whole."""
    history = read_history(folder / HISTORY)
    if history is None or _missing(history, live_bytes(history, categories_of(history))):
        return {}
    trains = BACKWARD in PHASES_OF_MODE[result.program.spec["dimensions"]["mode"]]
    return {"memory_failed": failure_table(history, trains)}


def empty_run_tables() -> dict[str, pd.DataFrame]:
    """The tables without rows."""
    return {
        "memory_phases": _without_rows(tables.PHASE_COLUMNS, ("phase", "category")),
        "memory_activations": _without_rows(tables.ACTIVATION_COLUMNS, ("part",)),
        "memory_largest": _without_rows(tables.LARGEST_COLUMNS, ()).astype(tables.LARGEST_TYPES),
        "memory_timeline": _without_rows(tables.TIMELINE_COLUMNS, ("phase",)).astype({"ms": "float64"}),
        "memory_totals": _without_rows(TOTALS, ()).astype(TOTAL_TYPES),
        "memory_failed": empty_failures(),
    }


def _totals(history: AllocationHistory, program: dict) -> pd.DataFrame:
    """One row: what the allocator and the driver counted, and what the shapes let expect."""
    shape, dimensions = shape_of(program), program["dimensions"]
    trains = BACKWARD in PHASES_OF_MODE[dimensions["mode"]]
    row = {f"{name}_bytes": history.counters[name] for name in COUNTERS} | {
        "estimated_peak_bytes": shape and estimated_peak_bytes(shape, dimensions["mode"], dimensions),
        "estimated_activation_bytes": saved_activation_bytes(shape, dimensions) if shape and trains else None,
        "events": history.events,
        "not_seen": "; ".join(history.cannot),
    }
    return pd.DataFrame([row], columns=TOTALS).astype(TOTAL_TYPES)


def _without_rows(names: Sequence[str], texts: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype="str" if name in texts else "int64") for name in names})


EXPLAINED = (
    "parameters, gradients, optimizer state, activations (made before the backward pass, live when it begins),"
    " temporary, workspace (never freed, and no tensor of the step), data (tokens, buffers, losses)"
)
DESCRIBED = {
    "memory_phases": Described(
        "One row per run with the stage memory, measured step, phase and category, at the phase's fullest moment",
        columns(f"""
    step | | number of the measured step, from 0; −1 for the whole process
    phase | | step, one phase of it, or process: from before the model is made to the end of the last step
    category | | what it is for: {EXPLAINED}
    bytes | B | requested by live allocations of the category; the categories of a phase sum to its peak
"""),
    ),
    "memory_activations": Described(
        "One row per run with a backward pass, part of the model and block: what the last measured step keeps for it",
        columns("""
    part | | innermost range in which it was allocated
    block | | number of the block, from 0; −1 outside of all
    bytes | B | requested by allocations of the forward pass and loss that are live when the backward pass begins
    allocations | | how many these are
"""),
    ),
    "memory_largest": Described(
        "The largest groups of allocations live at the fullest moment of the last step, alike in all but their block",
        columns("""
    category | | as in memory_phases
    phase | | phase in which they were made; (outside) of all steps
    range | | ranges inside the phase, outermost first, joined by " > "; (smaller ones) for the rest of a category
    operator | | outermost ATen operator that allocated; empty where the recorder does not tell
    each_bytes | B | size of one
    allocations | | how many there are
    bytes | B | of all of them
"""),
    ),
    "memory_timeline": Described(
        "At most 400 moments of the last measured step of a run, each the fullest of its slice of the events",
        columns(
            "moment | | number, in order\n ms | ms | since the step began, with the recorder on\n"
            "phase | | the phase that was open\n"
            + "\n".join(f"{tables.COLUMN_OF[name]} | B | live bytes: {name}" for name in CATEGORIES)
            + "\n live_bytes | B | live bytes of all categories"
        ),
    ),
    "memory_totals": Described(
        "One row per run with the stage memory: what allocator and driver counted, and what the shapes let expect",
        columns("""
    requested_peak_bytes | B | most that was requested at once; the replay of all allocations gives the same
    allocated_peak_bytes | B | most that the allocator had given out at once, in whole blocks
    reserved_peak_bytes | B | most that the allocator held of the device
    driver_used_bytes | B | memory of the device in use after the last step, as the driver says, by whomever
    estimated_peak_bytes | B | peak that follows from the shapes; empty for other people's models
    estimated_activation_bytes | B | what follows from the shapes for the activations; empty without a backward pass
    events | | allocations and releases
    not_seen | | what this kind of recording cannot tell
"""),
    ),
    "memory_failed": Described(
        "The largest groups of allocations live when memory ran out, of runs with the stage memory on a GPU",
        columns("""
    requested_bytes | B | what was asked for and not there
    free_bytes | B | what the GPU had free then
    in_phase | | phase in which it was asked for; (outside) of all steps
    in_range | | ranges inside the phase in which it was asked for, outermost first
    live_bytes | B | requested by all live allocations
    category | | as in memory_phases; of the step that did not end activations (forward, loss) and temporary; being made
    phase | | as in memory_largest
    range | | as in memory_largest
    operator | | as in memory_largest
    each_bytes | B | as in memory_largest
    allocations | | as in memory_largest
    bytes | B | as in memory_largest
"""),
    ),
}  # fmt: skip
