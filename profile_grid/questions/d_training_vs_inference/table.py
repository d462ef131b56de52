"""The tables of (d): GPU time by phase and kernel class, and of each part of the model forward and backward."""

from profile_grid.questions.d_training_vs_inference.parts import training_parts
from profile_grid.study.table_spec import PER_PASS, PageTable, TableSpec, columns
from profile_grid.tables.class_tables import CLASS_SHARES

TABLES = (
    CLASS_SHARES,
    TableSpec(
        "training_parts",
        "(d) One row per run whose capture tells the parts of the backward pass, per pass and part of the model",
        columns(
            """
    pass | text | | forward (with the loss), backward, or recomputation: what a checkpoint computes again
    part | text | | the innermost range, in the backward pass the innermost that the forward pass has too
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
