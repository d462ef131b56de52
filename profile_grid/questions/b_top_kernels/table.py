"""The table of (b), which (c) reads too, and what the page shows of it."""

from profile_grid.study.table_spec import PageTable
from profile_grid.tables.names import ALL_PHASES, FORWARD
from profile_grid.tables.top_kernels import TOP_KERNELS

TABLES = (TOP_KERNELS,)
PAGE_TABLES = (
    PageTable(
        "top_kernels",
        "The kernels with the most time, by rank",
        rows=lambda top: top[top["scope"].isin([FORWARD, ALL_PHASES])],
    ),
)
