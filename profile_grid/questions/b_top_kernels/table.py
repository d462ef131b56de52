"""The table of (b), which (c) reads too, and what the page shows of it."""

from __future__ import annotations

from profile_grid.study.described import Shown
from profile_grid.tables.names import ALL_PHASES, FORWARD
from profile_grid.tables.top_kernels import TOP_KERNELS

TABLES = {"top_kernels": TOP_KERNELS}
SHOWN = {
    "top_kernels": Shown(
        "The kernels with the most time, by rank",
        "top_kernels",
        rows=lambda top: top[top["scope"].isin([FORWARD, ALL_PHASES])],
    )
}
