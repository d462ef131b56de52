"""Errors of first steps against fp64, as the questions that show them have them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, known
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.per_pass import Merged

VERDICTS = {True: "yes", False: "**no**"}


def errors_of_runs(merged: Merged) -> pd.DataFrame:
    """One row per timed run: its errors, or why there are none."""
    return merged["accuracy"].reset_index(drop=True)


def errors_table(rows: pd.DataFrame, always: Sequence[str]) -> MarkdownTable | None:
    """One line per run: its relative errors, what its precision explains, and whether that is enough; None where no run
    has errors. `always` are the dimensions that it shows in any case."""
    if rows["loss_error"].isna().all():
        return None
    shown = shown_dimensions(rows, always)
    lines = []
    for row in rows.to_dict("records"):
        errors = [row[f"{name}_error"] for name in ("loss", "logits", "gradient_norm", "explained")]
        told = [f"{value:.1e}" if known(value) else ABSENT for value in errors]
        within = row["within_precision"]
        lines.append((*leading_cells(row, shown), *told, VERDICTS[bool(within)] if known(within) else ABSENT))
    headings = ("loss", "logits", "norm of the gradients", "explained", "within")
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))
