"""The tables of (i) about one block of the model, and about the types of its numbers."""

import pandas as pd

from cs336_model.arithmetic.memory import gradient_bytes_of_a_block, residual_bytes, saved_in_a_block
from profile_grid.stages.memory.block_tables import MEMORY_BLOCKS, MODULE_DTYPES
from profile_grid.stages.memory.usage_tables import MEMORY_ACTIVATIONS
from profile_grid.study.dimensions import CHECKPOINT, LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.conservation import check_shares
from profile_grid.tables.ideal import shape_of_run
from profile_grid.tables.per_pass import Merged, in_order_of

MEASURED = ["saved_bytes", "gradient_bytes", "backward_change_bytes", "residual_bytes"]
EXPECTED = ["estimated_saved_bytes", "estimated_gradient_bytes", "estimated_residual_bytes"]
OPERATION = ["part", "operator", "line"]


def memory_block(merged: Merged) -> pd.DataFrame:
    """(i) One row per run: the first of the blocks with the commonest numbers, and the same from the shapes."""
    rows = merged["memory_blocks"]
    alike = rows.groupby(["run", *MEASURED], dropna=False, sort=False)["block"].transform("size")
    rows = rows.assign(alike=alike, blocks=rows.groupby("run")["block"].transform("size"))
    first = rows.sort_values("alike", ascending=False, kind="stable").drop_duplicates("run").sort_index()
    runs = merged["runs"].set_index("run", drop=False)
    shapes = [_by_shapes(runs.loc[row["run"]], row) for row in first.to_dict("records")]
    expected = pd.DataFrame(shapes, index=first.index, columns=EXPECTED, dtype="Int64")
    return first[[*LEADING, "block", "alike", "blocks", *MEASURED]].join(expected).reset_index(drop=True)


def _by_shapes(run: pd.Series, row: dict) -> tuple[int | None, int | None, int | None]:
    """What the block keeps, its gradients, and a residual activation, in bytes; None if the shapes do not tell."""
    shape = shape_of_run(run)
    if shape is None:
        return None, None, None
    trains = pd.notna(row["saved_bytes"])
    keeps = saved_in_a_block(shape, row) if trains and row[CHECKPOINT.key] == CHECKPOINT.default else None
    return keeps, gradient_bytes_of_a_block(shape, row) if trains else None, residual_bytes(shape, row)


def memory_operations(merged: Merged) -> pd.DataFrame:
    """(i) One row per run, part, operator and line: what they keep in the block of `memory_block`, the most first."""
    chosen = memory_block(merged)[["run", "block"]]
    rows = merged["memory_activations"].merge(chosen, on=["run", "block"])
    total = rows.groupby("run")["bytes"].transform("sum")
    table = rows.assign(share=rows["bytes"] / total)
    check_shares(table, ["run"])
    table = in_order_of(table.assign(_less=-table["bytes"]), chosen["run"], "_less")
    return table[[*LEADING, "block", *OPERATION, "allocations", "bytes", "share"]]


TABLES = (
    TableSpec(
        "memory_block",
        "(i) One row per run: the numbers that most blocks of its model have, and what the shapes let expect",
        columns(
            "block | int | | the first block with these numbers, from 0\n"
            "alike | int | | blocks with these numbers\n blocks | int | | blocks of the model",
            MEMORY_BLOCKS.as_in(*MEASURED),
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
            MEMORY_ACTIVATIONS.as_in(*OPERATION, "allocations", "bytes"),
            "share | float | of 1 | of all that the block keeps",
        ),
        make=memory_operations,
    ),
    MODULE_DTYPES.copied("dtypes", "(i) One row per run and module: types in the first step"),
)
PAGE_TABLES = (
    PageTable("memory_block", "One block"),
    PageTable("memory_operations", "Kept for the backward pass by the operations of one block"),
    PageTable("dtypes", "Types of parameters, outputs and gradients"),
)
