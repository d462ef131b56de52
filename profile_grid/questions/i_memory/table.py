"""The tables of (i): the fullest moment of a step by category, what is kept by part, and what fits beside it."""

from __future__ import annotations

import pandas as pd

from profile_grid.questions.i_memory.fitting import LARGEST_BATCH, LONGEST_CONTEXT, predicted
from profile_grid.study.described import Described, Shown, SummaryTable, columns
from profile_grid.study.dimensions import BATCH_SIZE, CONTEXT_LENGTH, LEADING
from profile_grid.tables.conservation import check_shares
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged
from profile_grid.tables.texts import as_texts

OF_A_FAILURE = {
    "requested_bytes": "B", "free_bytes": "B", "in_phase": "", "in_range": "", "live_bytes": "B", "category": "",
    "phase": "", "range": "", "operator": "", "each_bytes": "B", "allocations": "", "bytes": "B",
}  # fmt: skip
OF_A_BISECTION = {
    "fitted": "", "largest": "", "fails_at": "", "predicted": "", "multiple_of": "", "limit_bytes": "B", "tries": "",
}  # fmt: skip
COUNTED = ["requested_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes", "driver_used_bytes"]


def memory_peak(merged: Merged) -> pd.DataFrame:
    """(i) One row per run and category: its bytes at the fullest moment of the last measured step, and in which phase
    that is. Raises NotConserved unless the shares sum to one."""
    rows = _last_step(as_texts(merged["memory_phases"]))
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
    """(i) One row per run with a backward pass and part of the model: what is kept for it, in all blocks and in one."""
    rows = as_texts(merged["memory_activations"])
    sums = rows.groupby([*LEADING, "part"], sort=False)["bytes"].agg(["sum", "count"]).reset_index()
    sums = sums.rename(columns={"sum": "bytes", "count": "places"})
    total = sums.groupby("run")["bytes"].transform("sum")
    table = sums.assign(bytes_of_a_place=sums["bytes"] / sums["places"], share=sums["bytes"] / total)
    check_shares(table, ["run"])
    return table


def memory_room(merged: Merged) -> pd.DataFrame:
    """(i) One row per run: what was counted beside what the shapes let expect, and what would fit by these."""
    totals = as_texts(merged["memory_totals"])
    kept = merged["memory_activations"].groupby("run", observed=True)["bytes"].sum()
    runs = merged["runs"].set_index("run")
    table = totals[[*LEADING, *COUNTED, "estimated_peak_bytes", "estimated_activation_bytes", "not_seen"]].assign(
        activation_bytes=totals["run"].map(kept).astype("Int64"),
        device_total_bytes=totals["run"].map(runs["device_total_bytes"]).astype("Int64"),
    )
    rows = table.join(runs[["d_model", "d_ff", "num_layers", "num_heads", "vocab_size"]], on="run").to_dict("records")
    for dimension, column in ((CONTEXT_LENGTH, LONGEST_CONTEXT), (BATCH_SIZE, LARGEST_BATCH)):
        table[column] = pd.array([predicted(row, dimension.key) for row in rows], dtype="Int64")
    return table.reset_index(drop=True)


def memory_groups(merged: Merged) -> pd.DataFrame:
    """(i) The largest groups of allocations that are live at the fullest moment of each run's last step."""
    return as_texts(merged["memory_largest"])


def memory_at_failure(merged: Merged) -> pd.DataFrame:
    """(i) The largest groups of allocations that were live when memory ran out, of each run that did."""
    return as_texts(merged["memory_failed"])


def memory_fits(merged: Merged) -> pd.DataFrame:
    """(i) One row per run and dimension whose largest value was measured, with what the shapes let expect."""
    return merged["largest"].reset_index(drop=True)


def _last_step(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last measured step of every run."""
    return rows[(rows["step"] >= 0) & (rows["step"] == rows.groupby("run")["step"].transform("max"))]


TABLES = {
    "memory_peak": SummaryTable(
        memory_peak,
        Described(
            "(i) One row per run and category: the fullest moment of the last measured step",
            columns("""
    category | | as in memory_phases
    bytes | B | requested by live allocations of the category
    peak_bytes | B | of all categories
    share | of 1 | of peak_bytes
    fullest_phase | | the phase in which that moment is
"""),
        ),
    ),
    "memory_parts": SummaryTable(
        memory_parts,
        Described(
            "(i) One row per run with a backward pass and part of the model: what the forward pass keeps for it",
            columns("""
    part | | innermost range in which it was allocated
    bytes | B | kept by all of these parts
    places | | blocks that have the part; 1 for what is outside of all blocks
    bytes_of_a_place | B | kept in one of them, on average
    share | of 1 | of all that is kept
"""),
        ),
    ),
    "memory_room": SummaryTable(
        memory_room,
        Described(
            "(i) One row per run: what was counted, what the shapes let expect, and what would fit",
            columns(f"""
    requested_peak_bytes | B | as in memory_totals
    allocated_peak_bytes | B | as in memory_totals
    reserved_peak_bytes | B | as in memory_totals
    driver_used_bytes | B | as in memory_totals
    estimated_peak_bytes | B | as in memory_totals
    estimated_activation_bytes | B | as in memory_totals
    not_seen | | as in memory_totals
    activation_bytes | B | what was found kept for the backward pass
    device_total_bytes | B | memory of the GPU
    {LONGEST_CONTEXT} | tokens | longest context whose estimated peak fits, all else as in the run; empty without a GPU
    {LARGEST_BATCH} | sequences | largest batch whose estimated peak fits, all else as in the run; empty without a GPU
"""),
        ),
    ),
    "memory_groups": SummaryTable(
        memory_groups,
        Described(
            "(i) The largest groups of allocations that are live at the fullest moment of the last step",
            columns("""
    category | | as in memory_largest
    phase | | as in memory_largest
    range | | as in memory_largest
    operator | | as in memory_largest
    each_bytes | B | as in memory_largest
    allocations | | as in memory_largest
    bytes | B | as in memory_largest
"""),
        ),
    ),
    "memory_at_failure": SummaryTable(
        memory_at_failure,
        Described(
            "(i) The largest groups of allocations that were live when memory ran out",
            columns("\n".join(f"{name} | {unit} | as in memory_failed" for name, unit in OF_A_FAILURE.items())),
        ),
    ),
    "memory_fits": SummaryTable(
        memory_fits,
        Described(
            "(i) One row per run and dimension whose largest value that fits was measured by bisection",
            columns("\n".join(f"{name} | {unit} | as in largest" for name, unit in OF_A_BISECTION.items())),
        ),
    ),
}
SHOWN = {
    "memory_peak": Shown("Memory at the fullest moment of a step", "memory_peak"),
    "memory_parts": Shown("Kept for the backward pass, by part", "memory_parts"),
    "memory_groups": Shown("Largest allocations at the fullest moment", "memory_groups"),
    "memory_at_failure": Shown("Largest allocations when memory ran out", "memory_at_failure"),
    "memory_fits": Shown("What fits, measured by bisection", "memory_fits"),
    "memory_room": Shown("Counted, expected, and what would fit", "memory_room"),
}
