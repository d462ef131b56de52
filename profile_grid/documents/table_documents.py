"""Tables as readable documents: any DataFrame as Markdown, and so in every format."""

from collections.abc import Iterator

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.quantities import ABSENT, known, significant
from profile_grid.tables.on_disk import declared_tables

LONGEST = 1000  # rows; a longer table comes as one document per run
NAMES = ("kernel",)
DIGITS = 4


def table_documents(name: str, table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Path without suffix and Markdown of the documents of one table: NAME, or NAME/RUN for each run of a long one."""
    if len(table) <= LONGEST:
        yield name, table_document(name, table)
        return
    for run, rows in table.groupby("run", sort=False):
        yield f"{name}/{run}", table_document(name, rows)


def table_document(name: str, table: pd.DataFrame) -> str:
    """One table in Markdown: what a row is, then the rows; integers in full, other numbers with four digits."""
    declared = declared_tables()[name]
    units = {column.name: column.unit for column in declared.all_columns}
    text = [column for column in table.columns if not pd.api.types.is_numeric_dtype(table[column])]
    numbers = [column for column in table.columns if column not in text]
    rows = tuple(
        tuple(_cell(column, value) for column, value in zip((*text, *numbers), row, strict=True))
        for row in table[[*text, *numbers]].itertuples(index=False, name=None)
    )
    headings = tuple(_heading(column, units.get(column, "")) for column in (*text, *numbers))
    return f"{escaped(declared.rows)}.\n\n{pipe_table(MarkdownTable(headings, rows, first_right=len(text)))}\n"


def _heading(column: str, unit: str) -> str:
    heading = escaped(column)
    return heading if not unit or column.endswith(f"_{unit}") else f"{heading}, {escaped(unit)}"


def _cell(column: str, value) -> str:
    if not known(value):
        return ABSENT
    if isinstance(value, float) and not value.is_integer():
        return significant(value, DIGITS)
    if isinstance(value, float):
        return f"{value:.0f}"
    return code(value, in_table=True) if column in NAMES else escaped(value)
