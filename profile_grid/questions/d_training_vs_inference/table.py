"""The tables of (d): GPU time by phase and kernel class, and of each part of the model forward and backward."""

import pandas as pd

from profile_grid.study.table_spec import PER_PASS, PageTable, TableSpec, columns
from profile_grid.tables.class_tables import CLASS_SHARES
from profile_grid.tables.conservation import check_shares, require_same
from profile_grid.tables.model_parts import KEY_COLUMNS, ranges_with_parts
from profile_grid.tables.names import BACKWARD, FORWARD, LOSS, NO_RANGE
from profile_grid.tables.per_pass import Merged, in_run_order, per_pass, with_share

PHASES = (FORWARD, LOSS, BACKWARD)


def training_parts(merged: Merged) -> pd.DataFrame:
    """(d) GPU time by part of the model and pass: forward (loss included), backward, and recomputation.

    No rows for captures without ranges of parts in the backward pass. Raises NotConserved unless the times add up to
    those of the phases, to the nanosecond.
    """
    kernels = merged.kernels[merged.kernels["phase"].isin(PHASES)]
    ranges = ranges_with_parts(kernels)
    runs_with_parts = ranges.loc[(ranges["pass"] == BACKWARD) & (ranges["part"] != NO_RANGE), "run"].unique()
    in_parts = kernels[kernels["run"].isin(runs_with_parts)]
    in_parts = in_parts.merge(ranges, on=KEY_COLUMNS, how="left", validate="many_to_one")
    table = with_share(per_pass(in_parts, ["pass", "part"], merged.captured_steps), ["run", "pass"])
    phases = merged["phases"]
    phases = phases[phases["run"].isin(runs_with_parts) & phases["phase"].isin(PHASES) & (phases["step"] >= 0)]
    require_same("GPU time by part", table["total_ns"].sum(), phases[["kernel_ns", "memop_ns"]].to_numpy().sum())
    check_shares(table, ["run", "pass"])
    return in_run_order(table, kernels, []).drop(columns=["total_ns", "same_in_every_step"])


TABLES = (
    CLASS_SHARES,
    TableSpec(
        "training_parts",
        "(d) One row per run, pass and part of the model, if the capture distinguishes parts of the backward pass",
        columns(
            """
    pass | text | | forward (with the loss), backward, or recomputation: what a checkpoint computes again
    part | text | | the innermost range; in the backward pass, the innermost that the forward pass also has
""",
            PER_PASS,
            "share | float | of 1 | of the pass's GPU time; sums to one",
        ),
        make=training_parts,
    ),
)
PAGE_TABLES = (
    PageTable("class_shares", "Classes by phase"),
    PageTable("training_parts", "Parts, forward and backward"),
)
