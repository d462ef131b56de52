"""What dividing state and parameters between ranks saves and costs: memory, bytes communicated, late all-gathers."""

import pandas as pd

from profile_grid.stages.memory.usage_tables import CATEGORY_COLUMNS
from profile_grid.study.dimensions import GPUS
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.per_pass import Merged, as_floats, with_leading_columns

AT_MOMENT, PEAK_BEFORE = "that moment", "peak before"
KEY_COLUMNS = ["run", "rank", "moment"]


def communication_memory(merged: Merged) -> pd.DataFrame:
    """(n) Two rows per run, rank and moment: the memory by category at that moment, and at the peak since the moment
    before. No rows without a run on several GPUs; otherwise, runs on one GPU have rows, too."""
    rows = merged["memory_moments"]
    if not (as_floats(rows[GPUS.key]) > 1).any():
        return COMMUNICATION_MEMORY.table([])
    keys, tables = rows[KEY_COLUMNS].drop_duplicates(), []
    for at, column in ((AT_MOMENT, "bytes"), (PEAK_BEFORE, "peak_bytes")):
        wide = rows.assign(bytes=as_floats(rows[column])).pivot(index=KEY_COLUMNS, columns="category", values="bytes")
        wide = wide.reindex(index=pd.MultiIndex.from_frame(keys), columns=list(CATEGORY_COLUMNS), fill_value=0)
        wide = wide.rename(columns=CATEGORY_COLUMNS).assign(at=at, all_bytes=wide.sum(axis=1))
        tables.append(wide.reset_index())
    table = pd.concat(tables).sort_index(kind="stable")  # both rows of a moment follow each other
    return with_leading_columns(table, rows)[COMMUNICATION_MEMORY.all_names]


def communication_volume(merged: Merged) -> pd.DataFrame:
    """(n) One row per run on several GPUs and operation: the calls and bytes in a step of a rank; if any size is
    unknown, bytes are NaN."""
    rows = merged["collectives"]
    rank_steps = rows[["run", "rank", "device", "step"]].drop_duplicates().groupby("run").size()  # steps of all ranks
    calls, summed = rows.assign(per_step=1.0, bytes=as_floats(rows["bytes"])), ["per_step", "bytes"]
    groups = calls.groupby(["run", "operation"], sort=False)[summed]
    table = groups.agg(lambda values: values.sum(skipna=False)).reset_index()
    table[summed] = table[summed].div(as_floats(table["run"].map(rank_steps)), axis=0)
    return with_leading_columns(table, rows)


def communication_gathers(merged: Merged) -> pd.DataFrame:
    """(n) One row per run with all-gathers, pass and layer: how often and how long the computation of the layer waited
    for the all-gather of its parameters."""
    rows = merged["layer_gathers"]
    late_ms = as_floats(rows["lateness_ns"]) / 1e6
    table = rows.assign(late_ms=late_ms, is_late=late_ms > 0).groupby(["run", "pass", "layer"], sort=False)
    table = table.agg(
        steps=("late_ms", "size"), late=("is_late", "sum"), mean_ms=("late_ms", "mean"), max_ms=("late_ms", "max"),
        gathers=("gathers", "mean"),
    ).reset_index()  # fmt: skip
    return with_leading_columns(table, rows)


COMMUNICATION_MEMORY = TableSpec(
    "communication_memory",
    "(n) Two rows per run with the stage memory, rank and moment, in grids with runs on several GPUs",
    columns(
        """
    rank | int | | number of the process, from 0
    moment | text | | as in memory_moments
"""
        + f"at | text | | {AT_MOMENT}, or {PEAK_BEFORE}: the peak since the previous moment\n"
        + "\n".join(f"{column} | int | B | live bytes: {name}" for name, column in CATEGORY_COLUMNS.items())
        + "\nall_bytes | int | B | of all categories"
    ),
    make=communication_memory,
)
TABLES = (
    COMMUNICATION_MEMORY,
    TableSpec(
        "communication_volume",
        "(n) One row per run on several GPUs and operation: means over ranks and captured steps",
        columns("""
    operation | text | | all-reduce, ...
    per_step | float | | such collectives in a step of a rank
    bytes | float | B | bytes of their tensors in a step, on one rank; empty if a size is unknown
"""),
        make=communication_volume,
    ),
    TableSpec(
        "communication_gathers",
        "(n) One row per run with all-gathers, pass and layer: over all ranks and captured steps",
        columns("""
    pass | text | | forward or backward
    layer | int | | number of the block in the pass, from 0, in the order in which blocks are computed
    steps | int | | captured steps of all ranks
    late | int | | of these, steps in which its computation waited for an all-gather
    mean_ms | float | ms | mean time that it waited, 0 in the others
    max_ms | float | ms | the longest
    gathers | float | | all-gathers that ended between the end of the block before and its own end
"""),
        make=communication_gathers,
    ),
)
PAGE_TABLES = (
    PageTable("communication_memory", "Memory of every rank by category"),
    PageTable("communication_volume", "Bytes communicated by operation"),
    PageTable("communication_gathers", "All-gathers and the layers that need them"),
)
