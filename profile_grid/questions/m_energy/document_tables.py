"""The table that the document of (m) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table
from profile_grid.quantities import percent, with_spread
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured

LED_BY = ("model", "context_length", "mode", "precision")
FIGURES = {  # column: heading, factor
    "joules_per_step": ("J per step", 1),
    "joules_per_token": ("mJ per token", 1e3),
    "power_w": ("power, W", 1),
    "idle_power_w": ("idle, W", 1),
    "tflops_per_watt": ("TFLOP/s per W", 1),
}


def energy_table(measured: Measured) -> Table:
    """(m) One line per run: energy of a step and a token, power, and what idle power takes while the GPU waits."""
    rows = measured.tables["energy_use"]
    shown = shown_dimensions(rows, LED_BY)
    shares = {"waits": "waiting_share", "energy while it waits": "waiting_energy_share"}
    lines = tuple(
        (
            *leading_cells(row, shown),
            *(with_spread(times * row[name], times * row[f"{name}_std"]) for name, (_, times) in FIGURES.items()),
            *(percent(row[name]) for name in shares.values()),
        )
        for row in rows.to_dict("records")
    )
    headings = (*(heading for heading, _ in FIGURES.values()), *shares)
    return Table((*headings_of(shown), *headings), lines, first_right=len(shown))
