"""The tables of (d): GPU time by phase and kernel class, and of each part of the model forward and backward."""

from __future__ import annotations

import pandas as pd

from profile_grid.questions.d_training_vs_inference.parts import training_parts
from profile_grid.study.described import PER_PASS, Described, Shown, SummaryTable, columns
from profile_grid.study.dimensions import LEADING
from profile_grid.tables.conservation import check_shares
from profile_grid.tables.names import ALL_PHASES
from profile_grid.tables.per_pass import Merged, in_run_order, numbers, per_pass, total_by_run, with_share


def class_shares(merged: Merged) -> pd.DataFrame:
    """(d) GPU time by phase and kernel class; `share` is of the phase and sums to one, `share_of_step` of the step."""
    kernels, steps = merged.kernels, merged.captured_steps
    whole = per_pass(kernels, ["class"], steps)
    whole.insert(len(LEADING), "phase", ALL_PHASES)
    table = pd.concat([whole, per_pass(kernels, ["phase", "class"], steps)], ignore_index=True)
    table = with_share(table, ["run", "phase"], "share")
    table["share_of_step"] = table["total_ns"] / numbers(table["run"].map(total_by_run(kernels)))
    check_shares(table, ["run", "phase"])
    return in_run_order(table, kernels, []).drop(columns=["total_ns", "same_in_every_step"])


TABLES = {
    "class_shares": SummaryTable(
        class_shares,
        Described(
            "(d) One row per run, phase and kernel class",
            columns(f"""
    phase | | a phase, or all phases
    class | | kind of work
    {PER_PASS}
    share | of 1 | of the phase's GPU time; sums to one
    share_of_step | of 1 | of the GPU time of all phases
"""),
        ),
    ),
    "training_parts": SummaryTable(
        training_parts,
        Described(
            "(d) One row per run whose capture tells the parts of the backward pass, per pass and part of the model",
            columns(f"""
    pass | | forward (with the loss), backward, or recomputation: what a checkpoint computes again
    part | | the innermost range, in the backward pass the innermost that the forward pass has too
    {PER_PASS}
    share | of 1 | of the pass's GPU time; sums to one
"""),
        ),
    ),
}
SHOWN = {
    "class_shares": Shown("Classes by phase", "class_shares"),
    "training_parts": Shown("Parts, forward and backward", "training_parts"),
}
