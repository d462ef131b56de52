"""GPU time by kernel class, in the forward pass and by phase: tables of (c), (d) and (e)."""

import pandas as pd

from profile_grid.study.dimensions import LEADING
from profile_grid.study.table_spec import PER_PASS, SAME, TableSpec, columns
from profile_grid.tables.conservation import check_shares
from profile_grid.tables.names import ALL_PHASES, FORWARD
from profile_grid.tables.per_pass import Merged, in_run_order, numbers, per_pass, total_by_run, with_share


def forward_classes(merged: Merged) -> pd.DataFrame:
    """(c) GPU time of the forward pass by kernel class, with its share of the forward pass's GPU time."""
    kernels = merged.kernels
    table = per_pass(kernels[kernels["phase"] == FORWARD], ["class"], merged.captured_steps)
    return with_share(table, ["run"], "share").pipe(in_run_order, kernels, []).drop(columns="total_ns")


def class_shares(merged: Merged) -> pd.DataFrame:
    """(d) GPU time by phase and kernel class; `share` is of the phase and sums to one, `share_of_step` of the step."""
    kernels, steps = merged.kernels, merged.captured_steps
    all_phases = per_pass(kernels, ["class"], steps)
    all_phases.insert(len(LEADING), "phase", ALL_PHASES)
    table = pd.concat([all_phases, per_pass(kernels, ["phase", "class"], steps)], ignore_index=True)
    table = with_share(table, ["run", "phase"], "share")
    table["share_of_step"] = table["total_ns"] / numbers(table["run"].map(total_by_run(kernels)))
    check_shares(table, ["run", "phase"])
    return in_run_order(table, kernels, []).drop(columns=["total_ns", "same_in_every_step"])


FORWARD_CLASSES = TableSpec(
    "forward_classes",
    "(c) One row per run and kernel class of the forward pass",
    columns(
        "class | text | | kind of work",
        PER_PASS,
        SAME,
        "share | float | of 1 | of the forward pass's GPU time; sums to one",
    ),
    make=forward_classes,
)
CLASS_SHARES = TableSpec(
    "class_shares",
    "(d) One row per run, phase and kernel class",
    columns(
        """
    phase | text | | a phase, or all phases
    class | text | | kind of work
""",
        PER_PASS,
        """
    share | float | of 1 | of the phase's GPU time; sums to one
    share_of_step | float | of 1 | of the GPU time of all phases
""",
    ),
    make=class_shares,
)
