"""The tables of (i): the peak of a step by category, bytes kept by part, one block, and types. Their first columns are
LEADING: the run's name and its dimensions."""

import pandas as pd

from profile_grid.stages.memory.tables import MEMORY_BLOCKS, MEMORY_FAILED, MODULE_DTYPES
from profile_grid.stages.memory.usage_tables import MEMORY_ACTIVATIONS, MEMORY_LARGEST, MEMORY_TOTALS
from profile_grid.study.dimensions import LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables import conservation, names, per_pass

# Of one block. `residual` is an activation of the residual stream, `backward_change` what its backward pass adds.
RECORDED_COLUMNS = ["saved_bytes", "gradient_bytes", "backward_change_bytes", "residual_bytes"]
OPERATION_COLUMNS = ["part", "operator", "line"]


def memory_block(merged: per_pass.Merged) -> pd.DataFrame:
    """(i) One row per run: its typical block, the first of those with the bytes that most blocks have."""
    blocks = merged["memory_blocks"]
    alike = blocks.groupby(["run", *RECORDED_COLUMNS], dropna=False, sort=False)["block"].transform("size")
    blocks = blocks.assign(alike=alike, blocks=blocks.groupby("run")["block"].transform("size"))
    typical = per_pass.largest_by_run(blocks, "alike").sort_index()  # in the order of the runs again
    return typical[[*LEADING, "block", "alike", "blocks", *RECORDED_COLUMNS]].reset_index(drop=True)


def memory_operations(merged: per_pass.Merged) -> pd.DataFrame:
    """(i) One row per run, part, operator and line: what they keep in the run's typical block; the most bytes first."""
    typical = memory_block(merged)[["run", "block"]]
    rows = merged["memory_activations"].merge(typical, on=["run", "block"])
    total = rows.groupby("run")["bytes"].transform("sum")
    table = rows.assign(share=rows["bytes"] / total)
    conservation.check_shares(table, ["run"])
    by = "bytes"
    table = per_pass.in_order_of(table, typical["run"], by, largest_first=by)
    return table[[*LEADING, "block", *OPERATION_COLUMNS, "allocations", "bytes", "share"]]


def memory_peak(merged: per_pass.Merged) -> pd.DataFrame:
    """(i) One row per run and category: its bytes at the peak of the last measured step, and the phase of the peak.
    Raises NotConserved unless the shares sum to one."""
    rows = _last_step(merged["memory_phases"])
    is_step = rows["phase"] == names.WHOLE_STEP
    categories = rows[is_step]
    total = categories.groupby("run")["bytes"].transform("sum")
    by_phase = rows[~is_step].groupby(["run", "phase"], sort=False)["bytes"].sum().reset_index()
    peak_phase = per_pass.largest_by_run(by_phase, "bytes").set_index("run")["phase"]
    table = categories[[*LEADING, "category", "bytes"]].assign(
        peak_bytes=total, share=categories["bytes"] / total, fullest_phase=categories["run"].map(peak_phase)
    )
    conservation.check_shares(table, ["run"])
    return table.reset_index(drop=True)


def largest_category_of_highest_peak(peaks: pd.DataFrame) -> pd.Series:
    """The row of the table `memory_peak` with the largest category of the run that has the highest peak."""
    return peaks[peaks["run"] == peaks.loc[peaks["peak_bytes"].idxmax(), "run"]].nlargest(1, "bytes").iloc[0]


def memory_parts(merged: per_pass.Merged) -> pd.DataFrame:
    """(i) One row per run with a backward pass and part of the model: the bytes that the part keeps for that pass, in
    the entire model and, on average, in one of its places. Each block that has the part is a place."""
    rows = merged["memory_activations"]
    parts = rows.groupby([*LEADING, "part"], sort=False)
    # everything outside of all blocks has the same number of a block, -1, so it counts as one place
    sums = parts.agg(bytes=("bytes", "sum"), places=("block", "nunique")).reset_index()
    total = sums.groupby("run")["bytes"].transform("sum")
    table = sums.assign(bytes_of_a_place=sums["bytes"] / sums["places"], share=sums["bytes"] / total)
    conservation.check_shares(table, ["run"])
    return table


def _last_step(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last measured step of every run. The rows on the entire process have step -1."""
    return rows[(rows["step"] >= 0) & (rows["step"] == rows.groupby("run")["step"].transform("max"))]


TABLES = (
    TableSpec(
        "memory_block",
        "(i) One row per run: the numbers that most blocks of its model have",
        columns(
            """
    block | int | | the first block with these numbers, from 0
    alike | int | | blocks with these numbers
    blocks | int | | blocks of the model
""",
            MEMORY_BLOCKS.as_in(*RECORDED_COLUMNS),
        ),
        make=memory_block,
    ),
    TableSpec(
        "memory_operations",
        "(i) One row per run, part, operator and line: what they keep in the block of memory_block",
        columns(
            "block | int | | as in memory_block",
            MEMORY_ACTIVATIONS.as_in(*OPERATION_COLUMNS, "allocations", "bytes"),
            "share | float | of 1 | of all that the block keeps",
        ),
        make=memory_operations,
    ),
    MODULE_DTYPES.copied("dtypes", "(i) One row per run and module: types in the first step"),
    TableSpec(
        "memory_peak",
        "(i) One row per run and category: memory at the peak of the last measured step",
        columns("""
    category | text | | as in memory_phases
    bytes | int | B | requested by live allocations of the category
    peak_bytes | int | B | of all categories
    share | float | of 1 | of peak_bytes
    fullest_phase | text | | the phase of the peak
"""),
        make=memory_peak,
    ),
    TableSpec(
        "memory_parts",
        "(i) One row per run with a backward pass and part of the model: what the forward pass keeps for it",
        columns("""
    part | text | | innermost range in which it was allocated
    bytes | int | B | kept by all of these parts
    places | int | | blocks that have the part; 1 for what is outside of all blocks
    bytes_of_a_place | float | B | kept in one of them, on average
    share | float | of 1 | of all that is kept
"""),
        make=memory_parts,
    ),
    MEMORY_TOTALS.copied("memory_allocator", "(i) One row per run: its peak by the allocator and by the driver"),
    MEMORY_LARGEST.copied("memory_groups", "(i) The largest groups of allocations in use at the peak of the last step"),
    MEMORY_FAILED.copied("memory_at_failure", "(i) The largest groups of allocations in use when memory ran out"),
)
PAGE_TABLES = (
    PageTable("memory_block", "One block"),
    PageTable("memory_operations", "Kept for the backward pass by the operations of one block"),
    PageTable("dtypes", "Types of parameters, outputs and gradients"),
    PageTable("memory_peak", "Memory at the peak of a step"),
    PageTable("memory_parts", "Kept for the backward pass, by part"),
    PageTable("memory_groups", "Largest allocations at the peak"),
    PageTable("memory_at_failure", "Largest allocations when memory ran out"),
    PageTable("memory_allocator", "Requested, allocated and reserved"),
)
