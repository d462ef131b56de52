"""The tables of (d): GPU time by phase and kernel class, and of each part of the model forward and backward."""

from __future__ import annotations

from profile_grid.questions.d_training_vs_inference.parts import training_parts
from profile_grid.study.described import PER_PASS, Described, Shown, SummaryTable, columns
from profile_grid.tables.class_tables import CLASS_SHARES

TABLES = {
    "class_shares": CLASS_SHARES,
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
