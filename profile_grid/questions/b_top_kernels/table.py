"""The table of (b), which (c) reads too, and what the page shows of it."""

from profile_grid.study.table_spec import PageTable
from profile_grid.tables import class_tables, names

TABLES = (class_tables.TOP_KERNELS,)
PAGE_TABLES = (
    PageTable(
        "top_kernels",
        "The kernels with the most time, by rank",
        select=lambda top: top[top["scope"].isin([names.FORWARD, names.ALL_PHASES])],
    ),
)
