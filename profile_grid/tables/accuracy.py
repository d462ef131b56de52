"""Errors of first steps against fp64, for the questions that show them."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, known
from profile_grid.tables.cells import lines_table

VERDICTS = {True: "yes", False: "**no**"}


def errors_table(rows: pd.DataFrame, always: Sequence[str]) -> MarkdownTable | None:
    """One line per run: its relative errors, the error that its precision explains, and the verdict; None without
    errors. The dimensions in `always` have a column in any case."""
    if rows["loss_error"].isna().all():
        return None
    return lines_table(
        rows, always, ("loss", "logits", "norm of the gradients", "expected from rounding", "within that"), _errors
    )


def _errors(row: dict) -> list[str]:
    errors = [row[f"{name}_error"] for name in ("loss", "logits", "gradient_norm", "explained")]
    verdict = VERDICTS[bool(row["within_precision"])] if known(row["within_precision"]) else ABSENT
    return [*(f"{value:.1e}" if known(value) else ABSENT for value in errors), verdict]
