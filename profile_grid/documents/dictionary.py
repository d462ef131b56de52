"""What every column of every table means: the data dictionary, from the declarations of the tables."""

from collections.abc import Iterable

from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.study.table_spec import LEADING_COLUMNS, Column, TableSpec
from profile_grid.tables.on_disk import declared_tables


def dictionary() -> str:
    """The data dictionary of all tables, in Markdown."""
    parts = [
        "# Data dictionary\n\nEvery table is stored as Parquet, in results/tables also as CSV. A unit *of 1* means"
        " a fraction: 0.25 is 25 %. GPU time is the sum of the durations of kernels and memory operations (on a CPU:"
        " of outermost ATen operators). Values that were not measured are empty, never zero. All tables but those of"
        " attention alone begin with the same columns:",
        _as_table(LEADING_COLUMNS),
    ]
    return "\n\n".join([*parts, *sections(declared_tables().values())]) + "\n"


def data_package() -> dict:
    """The schema of all tables as a Frictionless data package (specs.frictionlessdata.io), for results/tables."""
    return {"name": "profile-grid", "resources": [table.schema() for table in declared_tables().values()]}


def sections(tables: Iterable[TableSpec]) -> list[str]:
    """A section for every table, with its columns, in Markdown."""
    return [
        part
        for table in tables
        for part in (
            f"## {table.name}\n\n{escaped(table.rows)}.",
            _as_table(table.columns if table.leading == LEADING_COLUMNS else table.all_columns),
        )
    ]


def _as_table(columns: tuple[Column, ...]) -> str:
    rows = tuple((code(column.name, in_table=True), column.unit, escaped(column.meaning)) for column in columns)
    return pipe_table(MarkdownTable(("column", "unit", "meaning"), rows, first_right=3))
