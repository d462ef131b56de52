"""The tables that the document of (f) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table
from profile_grid.quantities import ABSENT, known
from profile_grid.study.dimensions import PRECISION
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD


def steps_table(measured: Measured) -> Table | None:
    """(f) One line per configuration: its step in fp32, then its time and speed-up in each other precision."""
    return ratio_tables.steps_table(measured.tables["precision_times"], PRECISION)


def phases_table(measured: Measured) -> Table | None:
    """(f) One line per configuration with a backward pass and precision: the speed-up of each phase."""
    return ratio_tables.phases_table(measured.tables["precision_times"], PRECISION)


def parts_tables(measured: Measured) -> list[tuple[str, Table]]:
    """(f) Speed-up of the GPU time of each part of the forward pass, with the title of each table."""
    rows = measured.mode("precision_parts", measured.inference_mode)
    return ratio_tables.parts_tables(rows[rows["phase"] == FORWARD])


def accuracy_table(measured: Measured) -> Table | None:
    """(f) One line per timed run: its relative errors, what its precision explains, and whether that is enough; None
    where no run has errors."""
    rows = measured.tables["precision_accuracy"]
    if rows["loss_error"].isna().all():
        return None
    shown = shown_dimensions(rows, (*ratio_tables.ALWAYS, PRECISION.key))
    lines = []
    for row in rows.to_dict("records"):
        errors = [_error(row[f"{name}_error"]) for name in ("loss", "logits", "gradient_norm", "explained")]
        within = (
            {True: "yes", False: "**no**"}[bool(row["within_precision"])] if known(row["within_precision"]) else ABSENT
        )
        lines.append((*leading_cells(row, shown), *errors, within))
    headings = ("loss", "logits", "norm of the gradients", "explained", "within")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _error(value: float | None) -> str:
    return f"{value:.1e}" if known(value) else ABSENT
