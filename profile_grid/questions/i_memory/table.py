"""The tables of (i): the peak of a step by category, bytes kept by part, one block, types, and what would fit. Their
first columns are LEADING: the run's name and its dimensions."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from cs336_model.arithmetic import memory
from profile_grid.largest import fitting
from profile_grid.largest.tables import LARGEST
from profile_grid.quantities import known
from profile_grid.stages.memory.tables import MEMORY_BLOCKS, MEMORY_FAILED, MODULE_DTYPES
from profile_grid.stages.memory.usage_tables import MEMORY_ACTIVATIONS, MEMORY_LARGEST, MEMORY_TOTALS
from profile_grid.study.dimensions import BATCH_SIZE, CHECKPOINT, CONTEXT_LENGTH, LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables import conservation, ideal, names, per_pass

LONGEST_CONTEXT, LARGEST_BATCH = "predicted_longest_context", "predicted_largest_batch"
PREDICTED_SIZES = ((CONTEXT_LENGTH, LONGEST_CONTEXT), (BATCH_SIZE, LARGEST_BATCH))
# Of one block. `residual` is an activation of the residual stream, `backward_change` what its backward pass adds.
RECORDED_COLUMNS = ["saved_bytes", "gradient_bytes", "backward_change_bytes", "residual_bytes"]
PREDICTED_COLUMNS = ["estimated_saved_bytes", "estimated_gradient_bytes", "estimated_residual_bytes"]
OPERATION_COLUMNS = ["part", "operator", "line"]
PEAK_COLUMNS = ["requested_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "driver_used_bytes"]


def predicted_largest(row: Mapping[str, Any], dimension: str) -> int | None:
    """The largest value of this dimension with which the run's estimated peak fits into its GPU, 0 if none does; None
    without an estimate (other people's models, several GPUs) and without a GPU."""
    if not (known(row["device_total_bytes"]) and known(row["estimated_peak_bytes"])):
        return None

    def fits(value: int) -> bool:
        return _estimated_peak_bytes(row | {dimension: value}) + memory.NON_TENSOR_BYTES <= row["device_total_bytes"]

    return fitting.largest_fitting(fits, int(row[dimension]))


def _estimated_peak_bytes(row: Mapping[str, Any]) -> int:
    """The peak by the shapes and the present formulas. The estimate in the run's result may be from older formulas."""
    return memory.estimated_peak_bytes(ideal.declared_shape(row), row["mode"], row)


def memory_block(merged: per_pass.Merged) -> pd.DataFrame:
    """(i) One row per run: its typical block, with the bytes as recorded and as predicted from the shapes. Most blocks
    have the same bytes; the first of these is the typical one."""
    blocks = merged["memory_blocks"]
    alike = blocks.groupby(["run", *RECORDED_COLUMNS], dropna=False, sort=False)["block"].transform("size")
    blocks = blocks.assign(alike=alike, blocks=blocks.groupby("run")["block"].transform("size"))
    typical = per_pass.largest_by_run(blocks, "alike").sort_index()  # in the order of the runs again
    runs = merged["runs"].set_index("run", drop=False)
    predicted_bytes = [_predicted_bytes(runs.loc[block["run"]], block) for block in typical.to_dict("records")]
    predicted = pd.DataFrame(predicted_bytes, index=typical.index, columns=PREDICTED_COLUMNS, dtype="Int64")
    return typical[[*LEADING, "block", "alike", "blocks", *RECORDED_COLUMNS]].join(predicted).reset_index(drop=True)


def _predicted_bytes(run: pd.Series, block: dict) -> tuple[int | None, int | None, int | None]:
    """The values of PREDICTED_COLUMNS, each None where there is no prediction. `block` is a row of `memory_blocks`."""
    shape = ideal.shape_of_run(run)
    if shape is None:  # not our model
        return None, None, None
    residual = memory.residual_bytes(shape, block)
    if pd.isna(block["saved_bytes"]):  # no backward pass
        return None, None, residual
    saved = memory.saved_block_bytes(shape, block) if block[CHECKPOINT.key] == CHECKPOINT.default else None
    return saved, memory.block_gradient_bytes(shape, block), residual


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


def memory_room(merged: per_pass.Merged) -> pd.DataFrame:
    """(i) One row per run: peaks as counted and as estimated from the shapes, and the sizes that would fit by the
    estimate. `not_seen`: what could not be recorded on this machine, in words."""
    totals = merged["memory_totals"]
    kept_bytes = merged["memory_activations"].groupby("run", observed=True)["bytes"].sum()
    runs = merged["runs"].set_index("run")
    table = totals[[*LEADING, *PEAK_COLUMNS, "estimated_peak_bytes", "estimated_activation_bytes", "not_seen"]].assign(
        activation_bytes=totals["run"].map(kept_bytes).astype("Int64"),
        device_total_bytes=totals["run"].map(runs["device_total_bytes"]).astype("Int64"),
    )
    sizes = [name for name in ideal.SHAPE_FIELDS if name not in LEADING]
    rows = table.join(runs[sizes], on="run").to_dict("records")
    peaks = [_estimated_peak_bytes(row) if known(row["estimated_peak_bytes"]) else None for row in rows]
    table["estimated_peak_bytes"] = pd.array(peaks, dtype="Int64")  # instead of the stored ones
    for dimension, column in PREDICTED_SIZES:
        table[column] = pd.array([predicted_largest(row, dimension.key) for row in rows], dtype="Int64")
    return table.reset_index(drop=True)


def memory_fits(merged: per_pass.Merged) -> pd.DataFrame:
    """(i) The merged table `largest`. Where the limit was the memory of the run's GPU, the stored prediction, which may
    be from older formulas, is replaced by that of `memory_room`, so that both tables agree."""
    table, room = merged["largest"].reset_index(drop=True), memory_room(merged).set_index("run")
    is_whole_gpu = table["limit_bytes"] == table["run"].map(room["device_total_bytes"])
    for dimension, column in PREDICTED_SIZES:
        is_replaced = is_whole_gpu & (table["fitted"] == dimension.key)
        table.loc[is_replaced, "predicted"] = table.loc[is_replaced, "run"].map(room[column])
    return table


def _last_step(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last measured step of every run. The rows on the entire process have step -1."""
    return rows[(rows["step"] >= 0) & (rows["step"] == rows.groupby("run")["step"].transform("max"))]


TABLES = (
    TableSpec(
        "memory_block",
        "(i) One row per run: the numbers that most blocks of its model have, and the same from the shapes",
        columns(
            """
    block | int | | the first block with these numbers, from 0
    alike | int | | blocks with these numbers
    blocks | int | | blocks of the model
""",
            MEMORY_BLOCKS.as_in(*RECORDED_COLUMNS),
            """
    estimated_saved_bytes | int | B | saved_bytes from the shapes; empty for custom models, and with checkpoints
    estimated_gradient_bytes | int | B | gradient_bytes from the shapes; empty for custom models
    estimated_residual_bytes | int | B | residual_bytes from the shapes; empty for custom models
""",
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
    TableSpec(
        "memory_room",
        "(i) One row per run: memory as counted, memory as predicted from the shapes, and what would fit",
        columns(
            MEMORY_TOTALS.as_in(*PEAK_COLUMNS, "estimated_peak_bytes", "estimated_activation_bytes", "not_seen"),
            f"""
    activation_bytes | int | B | recorded activations that are kept for the backward pass
    device_total_bytes | int | B | memory of the GPU
    {LONGEST_CONTEXT} | int | tokens | longest context whose estimated peak fits, with all other settings as in the \
        run; empty without a GPU
    {LARGEST_BATCH} | int | sequences | largest batch whose estimated peak fits, with all other settings as in the \
        run; empty without a GPU
""",
        ),
        make=memory_room,
    ),
    MEMORY_LARGEST.copied("memory_groups", "(i) The largest groups of allocations in use at the peak of the last step"),
    MEMORY_FAILED.copied("memory_at_failure", "(i) The largest groups of allocations in use when memory ran out"),
    TableSpec(
        "memory_fits",
        "(i) One row per run and dimension whose largest value that fits was measured by bisection",
        LARGEST.as_in(),
        make=memory_fits,
    ),
)
PAGE_TABLES = (
    PageTable("memory_block", "One block"),
    PageTable("memory_operations", "Kept for the backward pass by the operations of one block"),
    PageTable("dtypes", "Types of parameters, outputs and gradients"),
    PageTable("memory_peak", "Memory at the peak of a step"),
    PageTable("memory_parts", "Kept for the backward pass, by part"),
    PageTable("memory_groups", "Largest allocations at the peak"),
    PageTable("memory_at_failure", "Largest allocations when memory ran out"),
    PageTable("memory_fits", "What fits, measured by bisection"),
    PageTable("memory_room", "Counted, predicted, and what would fit"),
)
