"""The tables of (i): the peak of a step by category, bytes kept by part, and what would fit."""

import pandas as pd

from profile_grid.largest.tables import LARGEST
from profile_grid.questions.i_memory import block_table
from profile_grid.questions.i_memory.fitting import LARGEST_BATCH, LONGEST_CONTEXT, predicted
from profile_grid.stages.memory.failure_tables import MEMORY_FAILED
from profile_grid.stages.memory.usage_tables import MEMORY_LARGEST, MEMORY_TOTALS
from profile_grid.study.dimensions import BATCH_SIZE, CONTEXT_LENGTH, LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.conservation import check_shares
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged

COUNTED = ["requested_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "driver_used_bytes"]


def memory_peak(merged: Merged) -> pd.DataFrame:
    """(i) One row per run and category: its bytes at the peak of the last measured step, and the phase of the peak.
    Raises NotConserved unless the shares sum to one."""
    rows = _last_step(merged["memory_phases"])
    step = rows[rows["phase"] == WHOLE_STEP]
    total = step.groupby("run")["bytes"].transform("sum")
    by_phase = rows[rows["phase"] != WHOLE_STEP].groupby(["run", "phase"], sort=False)["bytes"].sum().reset_index()
    fullest = by_phase.sort_values("bytes", ascending=False, kind="stable").drop_duplicates("run").set_index("run")
    table = step[[*LEADING, "category", "bytes"]].assign(
        peak_bytes=total, share=step["bytes"] / total, fullest_phase=step["run"].map(fullest["phase"])
    )
    check_shares(table, ["run"])
    return table.reset_index(drop=True)


def memory_parts(merged: Merged) -> pd.DataFrame:
    """(i) One row per run with a backward pass and part of the model: bytes kept for that pass, in all blocks and in
    one."""
    rows = merged["memory_activations"]
    parts = rows.groupby([*LEADING, "part"], sort=False)
    sums = parts.agg(bytes=("bytes", "sum"), places=("block", "nunique")).reset_index()
    total = sums.groupby("run")["bytes"].transform("sum")
    table = sums.assign(bytes_of_a_place=sums["bytes"] / sums["places"], share=sums["bytes"] / total)
    check_shares(table, ["run"])
    return table


def memory_room(merged: Merged) -> pd.DataFrame:
    """(i) One row per run: peaks as counted and as estimated from the shapes, and the sizes that would fit by the
    estimate."""
    totals = merged["memory_totals"]
    kept_bytes = merged["memory_activations"].groupby("run", observed=True)["bytes"].sum()
    runs = merged["runs"].set_index("run")
    table = totals[[*LEADING, *COUNTED, "estimated_peak_bytes", "estimated_activation_bytes", "not_seen"]].assign(
        activation_bytes=totals["run"].map(kept_bytes).astype("Int64"),
        device_total_bytes=totals["run"].map(runs["device_total_bytes"]).astype("Int64"),
    )
    rows = table.join(runs[["d_model", "d_ff", "num_layers", "num_heads", "vocab_size"]], on="run").to_dict("records")
    for dimension, column in ((CONTEXT_LENGTH, LONGEST_CONTEXT), (BATCH_SIZE, LARGEST_BATCH)):
        table[column] = pd.array([predicted(row, dimension.key) for row in rows], dtype="Int64")
    return table.reset_index(drop=True)


def _last_step(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last measured step of every run."""
    return rows[(rows["step"] >= 0) & (rows["step"] == rows.groupby("run")["step"].transform("max"))]


TABLES = (
    *block_table.TABLES,
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
    TableSpec(
        "memory_room",
        "(i) One row per run: memory as counted, memory as predicted from the shapes, and what would fit",
        columns(
            MEMORY_TOTALS.as_in(*COUNTED, "estimated_peak_bytes", "estimated_activation_bytes", "not_seen"),
            f"""
    activation_bytes | int | B | recorded activations that are kept for the backward pass
    device_total_bytes | int | B | memory of the GPU
    {LONGEST_CONTEXT} | int | tokens | longest context whose estimated peak fits, all else as in the run; empty \
        without a GPU
    {LARGEST_BATCH} | int | sequences | largest batch whose estimated peak fits, all else as in the run; empty \
        without a GPU
""",
        ),
        make=memory_room,
    ),
    MEMORY_LARGEST.copied("memory_groups", "(i) The largest groups of allocations in use at the peak of the last step"),
    MEMORY_FAILED.copied("memory_at_failure", "(i) The largest groups of allocations in use when memory ran out"),
    LARGEST.copied(
        "memory_fits", "(i) One row per run and dimension whose largest value that fits was measured by bisection"
    ),
)
PAGE_TABLES = (
    *block_table.PAGE_TABLES,
    PageTable("memory_peak", "Memory at the peak of a step"),
    PageTable("memory_parts", "Kept for the backward pass, by part"),
    PageTable("memory_groups", "Largest allocations at the peak"),
    PageTable("memory_at_failure", "Largest allocations when memory ran out"),
    PageTable("memory_fits", "What fits, measured by bisection"),
    PageTable("memory_room", "Counted, expected, and what would fit"),
)
