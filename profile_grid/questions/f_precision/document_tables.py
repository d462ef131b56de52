"""The tables that the document of (f) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table
from profile_grid.study.dimensions import PRECISION
from profile_grid.tables import ratio_tables
from profile_grid.tables.accuracy import errors_table
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
    return errors_table(measured.tables["precision_accuracy"], (*ratio_tables.ALWAYS, PRECISION.key))
