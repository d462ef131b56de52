"""The data dictionary: what every column of every table means, from the declarations of the tables."""

from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.study.table_spec import LEADING_COLUMNS, Column
from profile_grid.tables.on_disk import declared_tables


def dictionary() -> str:
    """The data dictionary of all tables, in Markdown."""
    parts = [
        "# Data dictionary\n\nEvery table is stored as Parquet, in results/tables also as CSV. A unit *of 1* means"
        " a fraction: 0.25 is 25 %. GPU time is the sum of the durations of kernels and memory operations (on a CPU:"
        " of outermost ATen operators). Values that were not measured are empty, never zero. All tables but those of"
        " attention alone begin with the same columns:",
        _column_table(LEADING_COLUMNS),
    ]
    for table in declared_tables().values():
        columns = table.columns if table.leading == LEADING_COLUMNS else table.all_columns
        parts.append(f"## {table.name}\n\n{escaped(table.row_meaning)}.\n\n{_column_table(columns)}")
    return "\n\n".join(parts) + "\n"


def _column_table(columns: tuple[Column, ...]) -> str:
    rows = tuple((code(column.name, in_table=True), column.unit, escaped(column.meaning)) for column in columns)
    headings = ("column", "unit", "meaning")
    return pipe_table(MarkdownTable(headings, rows, first_right=len(headings)))  # none is right-aligned
