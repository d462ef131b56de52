"""The tables of the memory stage of one run, and whether its history is complete."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cs336_model import ranges
from cs336_model.program.memory.history import FailedAllocation
from profile_grid.host.processes.ranks import rank_path
from profile_grid.results.capture_identity import identity_difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, OUT_OF_MEMORY, StageResult
from profile_grid.results.run_tables import RunTables, tables_status
from profile_grid.stages.memory import usage_tables
from profile_grid.stages.memory.history import (
    ACTIVATION_PHASES,
    CATEGORIES,
    NO_PHASE,
    NO_RANGE_NUMBER,
    AllocationHistory,
    Category,
    categories_of,
    category_names,
    live_bytes,
    number_of,
    phase_by_range,
    read_history,
)
from profile_grid.study import stages, table_spec
from profile_grid.tables.names import STEP

(HISTORY,) = stages.MEMORY.files
COUNTERS = ("requested_peak", "allocated_peak", "reserved_peak", "driver_used")  # keys of AllocationHistory.counters


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's memory stage, and its tables. They are those of the first rank; only `memory_moments` has
    all ranks. There are no tables unless every history is complete, except `memory_failed` if memory ran out."""
    moments, rank_count = [], len(result.facts.get("ranks") or [HISTORY])
    for rank in reversed(range(rank_count)):  # the first rank comes last, since its tables are kept
        path = rank_path(folder / HISTORY, rank)
        if reason := identity_difference(result, path):
            return RunTables(tables_status(INCOMPLETE, f"{reason}: it is not the history of this run"), {})
        if result.status != COMPLETE:
            tables_of_failure = _failure(result, folder) if result.status == OUT_OF_MEMORY else {}
            return RunTables(tables_status(result.status, result.reason), tables_of_failure)
        status, tables = tables_of_history(read_history(path), rank)
        if not tables:
            return RunTables(status, tables)
        moments.insert(0, tables["memory_moments"])
    return RunTables(status, tables | {"memory_moments": pd.concat(moments, ignore_index=True)})


def tables_of_history(history: AllocationHistory, rank: int = 0) -> RunTables:
    """The status and tables of one rank, from its history; no tables if `_reason_if_incomplete` has a reason."""
    categories = categories_of(history)
    live = live_bytes(history, categories)
    if reason := _reason_if_incomplete(history, live):
        return RunTables(tables_status(INCOMPLETE, reason), {})
    moments = usage_tables.moments_table(history, live).assign(rank=rank)
    last_step = history.ranges[history.measured_steps()[-1]]
    fullest = usage_tables.fullest_state(live, last_step.first_event, last_step.event_after)
    tables = {
        "memory_phases": usage_tables.phases_table(history, live),
        "memory_moments": moments[usage_tables.MEMORY_MOMENTS.names],
        "memory_activations": usage_tables.activations_table(history, categories),
        "memory_largest": usage_tables.largest_table(history, category_names(categories), fullest),
        "memory_timeline": usage_tables.timeline_table(history, live),
        "memory_totals": _totals(history),
        "memory_blocks": blocks_table(history, categories, live),
        "module_dtypes": MODULE_DTYPES.table(history.dtypes, of_a_run=True),
    }
    return RunTables(tables_status(COMPLETE), tables)


def _reason_if_incomplete(history: AllocationHistory, live: np.ndarray) -> str | None:
    """Why the history is incomplete: its replay does not reach the allocator's peak; None if it does."""
    peak, counted_peak = int(live.sum(axis=1).max(initial=0)), history.counters["requested_peak"]
    if peak == counted_peak:
        return None
    return f"the replay of its allocations reaches {peak} bytes, the allocator counted {counted_peak}: some are missing"


def _failure(result: StageResult, folder: Path) -> dict[str, pd.DataFrame]:
    """`memory_failed` by its name; {} without a complete history of the time until memory ran out."""
    history = read_history(folder / HISTORY)
    if history is None or _reason_if_incomplete(history, live_bytes(history, categories_of(history))):
        return {}
    has_backward = ranges.BACKWARD in ranges.PHASES_OF_MODE[result.program.spec["dimensions"]["mode"]]
    return {"memory_failed": failure_table(history, has_backward)}


def _totals(history: AllocationHistory) -> pd.DataFrame:
    """One row: numbers of the allocator and the driver."""
    row = {f"{name}_bytes": history.counters[name] for name in COUNTERS}
    row |= {"events": history.event_count, "not_seen": "; ".join(history.not_seen)}
    return usage_tables.MEMORY_TOTALS.table([row], of_a_run=True)


BEING_MADE = "being made"  # the category of model, optimizer and tokens if memory ran out before they were finished


def failure_table(history: AllocationHistory, has_backward: bool) -> pd.DataFrame:
    """One row per group of allocations that were live when the last request failed, the largest first. Each row also
    has the facts of that request. No rows without a failed request. `has_backward`: the run has a backward pass.

    The history continues after the request, since memory is freed while the error passes through the program. That part
    is ignored. So the category of an allocation in the unfinished step cannot follow from when it was freed."""
    failed = history.failed_allocation
    if failed is None:
        return MEMORY_FAILED.empty()
    categories = _categories_at(history, failed, has_backward)
    groups = usage_tables.largest_table(history, categories, state=failed.event - 1)
    phase, path = usage_tables.phase_and_range(history, number_of(failed.range))
    table = groups.assign(
        requested_bytes=failed.requested_bytes, free_bytes=failed.free_bytes,
        in_phase=phase, in_range=path, live_bytes=int(groups["bytes"].sum()),
    )  # fmt: skip
    return table[MEMORY_FAILED.names].astype({"free_bytes": "Int64", "in_phase": "str", "in_range": "str"})


def _categories_at(history: AllocationHistory, failed: FailedAllocation, has_backward: bool) -> list[str]:
    """The category of each allocation, as far as it is known at the moment of the failed request."""
    categories, phases = category_names(categories_of(history)), phase_by_range(history)
    path = history.path(number_of(failed.range))
    unfinished_step = next((number for number in path if history.ranges[number].name == STEP), None)
    # what held an allocation at the end is its category; the others may be known less well than `categories_of` says
    for allocation in np.flatnonzero([holder is None for holder in history.holder]):
        number = int(history.range_number[allocation])
        if failed.range is None and number == NO_RANGE_NUMBER:
            categories[allocation] = BEING_MADE
        elif unfinished_step in history.path(number):
            is_activation = has_backward and phases.get(number, NO_PHASE).name in ACTIVATION_PHASES
            categories[allocation] = str(Category.ACTIVATIONS if is_activation else Category.TEMPORARY)
    return categories


MEMORY_FAILED = table_spec.TableSpec(
    "memory_failed",
    "The largest groups of allocations live when memory ran out, of runs with the stage memory on a GPU",
    table_spec.columns(
        """
    requested_bytes | int | B | size of the request that failed
    free_bytes | int | B | free memory of the GPU then
    in_phase | text | | phase of the request; (outside) of all steps
    in_range | text | | ranges of the request inside the phase, outermost first
    live_bytes | int | B | requested by all live allocations
    category | text | | as in memory_phases; in the unfinished step activations (forward, loss) and temporary; \
        being made
""",
        usage_tables.MEMORY_LARGEST.as_in(*usage_tables.MEMORY_LARGEST.names[1:]),
    ),
)


def blocks_table(history: AllocationHistory, categories: np.ndarray, live: np.ndarray) -> pd.DataFrame:
    """One row per block in the last measured step. What the backward pass of a block does to memory is only known if
    each block has one range there. A block that is computed again has several."""
    step = history.measured_steps()[-1]
    forward = usage_tables.block_by_range(history, step, ranges.FORWARD)
    backward_ranges = list(usage_tables.block_by_range(history, step, ranges.BACKWARD))
    # the backward pass begins with the last block
    backward = {number: block for block, number in enumerate(reversed(backward_ranges))}
    saved = _bytes_by_block(history, forward, categories == CATEGORIES.index(Category.ACTIVATIONS))
    gradients = _bytes_by_block(history, backward, categories == CATEGORIES.index(Category.GRADIENTS))
    residual = _residual_bytes(history, forward)
    total, rows = live.sum(axis=1), []
    span_by_block = {block: history.ranges[number] for number, block in backward.items()}
    has_backward = any(name == ranges.BACKWARD for name, _ in history.phases_of(step))
    has_one_range_each = len(backward) == len(forward)
    for block in forward.values():
        gradient_bytes = change_bytes = None
        if has_one_range_each:
            span = span_by_block[block]
            change_bytes = int(total[span.event_after - 1] - total[span.first_event - 1])
            gradient_bytes = gradients.get(block, 0)
        saved_bytes = saved.get(block, 0) if has_backward else None
        rows.append((block, saved_bytes, gradient_bytes, change_bytes, residual.get(block)))
    return MEMORY_BLOCKS.table(rows, of_a_run=True)


def _bytes_by_block(history: AllocationHistory, blocks: dict[int, int], mask: np.ndarray) -> dict[int, int]:
    """By block, the bytes of the allocations that the mask selects; `blocks` comes from `block_by_range`."""
    byte_counts: dict[int, int] = {}
    for allocation in np.flatnonzero(mask):
        block = usage_tables.block_of(history, int(history.range_number[allocation]), blocks)
        byte_counts[block] = byte_counts.get(block, 0) + int(history.size_bytes[allocation])
    return byte_counts


def _residual_bytes(history: AllocationHistory, blocks: dict[int, int]) -> dict[int, int]:
    """By block, the bytes of the largest tensor made in its range `residual`: an activation of the residual stream."""
    largest: dict[int, int] = {}
    for allocation in np.flatnonzero(history.range_number != NO_RANGE_NUMBER):
        number = int(history.range_number[allocation])
        block = usage_tables.block_of(history, number, blocks)
        if block != usage_tables.NO_BLOCK and history.ranges[number].name == ranges.RESIDUAL:
            largest[block] = max(largest.get(block, 0), int(history.size_bytes[allocation]))
    return largest


MEMORY_BLOCKS = table_spec.TableSpec(
    "memory_blocks",
    "One row per run with the stage memory and block of its model, in the last measured step",
    table_spec.columns("""
    block | int | | number of the block, from 0
    saved_bytes | int | B | allocated in its forward pass and live when the backward pass begins; empty without one
    gradient_bytes | int | B | gradients allocated in its backward pass; empty without one, and with checkpoints
    backward_change_bytes | int | B | live bytes at the end of its backward pass less those at its beginning; empty \
        without one, and with checkpoints
    residual_bytes | int | B | largest tensor made in its range residual: an activation of the residual stream
"""),
)
MODULE_DTYPES = table_spec.TableSpec(
    "module_dtypes",
    "One row per uncompiled run with the stage memory and module, those of a list together, from the first step",
    table_spec.columns("""
    module | text | | its path, with * for numbers; (logits) and (loss) for what the model and the loss return
    modules | int | | number of modules
    parameters | text | | types of its parameters, without those of modules inside
    output | text | | types of the tensors that it returns
    gradients | text | | types of the gradients of its parameters; empty without a backward pass
"""),
)
TABLES = (*usage_tables.TABLES, MEMORY_FAILED, MEMORY_BLOCKS, MODULE_DTYPES)
