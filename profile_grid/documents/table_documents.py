"""Tables as documents in Markdown, from which every format is made."""

from collections.abc import Iterator

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.quantities import ABSENT, known, significant
from profile_grid.tables.on_disk import declared_tables

MAX_ROWS = 1000  # of one document; a longer table becomes one document per run
DIGITS = 4


def table_documents(name: str, table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """(path without suffix, Markdown) of the documents of one table: NAME, or NAME/RUN for each run of a long one."""
    if len(table) <= MAX_ROWS:
        yield name, table_document(name, table)
        return
    for run, rows in table.groupby("run", sort=False):
        yield f"{name}/{run}", table_document(name, rows)


def table_document(name: str, table: pd.DataFrame) -> str:
    """One table in Markdown: what a row is, then the rows. Columns of texts come before those of numbers. Integers are
    written in full, other numbers with four significant digits."""
    declared = declared_tables()[name]
    units = {column.name: column.unit for column in declared.all_columns}
    texts = [column for column in table.columns if not pd.api.types.is_numeric_dtype(table[column])]
    columns = [*texts, *(column for column in table.columns if column not in texts)]
    rows = tuple(
        tuple(_cell(column, value) for column, value in zip(columns, row, strict=True))
        for row in table[columns].itertuples(index=False, name=None)
    )
    headings = tuple(_heading(column, units.get(column, "")) for column in columns)
    return f"{escaped(declared.row_meaning)}.\n\n{pipe_table(MarkdownTable(headings, rows, first_right=len(texts)))}\n"


def _heading(column: str, unit: str) -> str:
    heading = escaped(column)
    return heading if not unit or column.endswith(f"_{unit}") else f"{heading}, {escaped(unit)}"


def _cell(column: str, value) -> str:
    if not known(value):
        return ABSENT
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else significant(value, DIGITS)
    return code(value, in_table=True) if column == "kernel" else escaped(value)
