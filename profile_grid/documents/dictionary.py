"""What every column of every table means: the data dictionary, gathered from the code that makes the tables."""

from __future__ import annotations

from functools import cache

import pandas as pd

from kernel_tables.markdown import Table, code, escaped, pipe_table
from profile_grid.documents.summaries import declared_tables
from profile_grid.errors import OutsideError
from profile_grid.largest import tables as largest
from profile_grid.merging import cost, run_overview
from profile_grid.study.catalogue import TABLES
from profile_grid.study.described import LEADING_COLUMNS, Column, Described
from profile_grid.study.stages import STAGES


class UndocumentedColumn(OutsideError):
    """A table and its description do not agree; the message is one line."""


@cache
def described() -> dict[str, Described]:
    """The description of every table, in their order."""
    found = run_overview.DESCRIBED | cost.DESCRIBED | largest.DESCRIBED
    for stage in STAGES:
        if stage.has_tables:
            found |= stage.load("tables").DESCRIBED
    found |= {name: table.described for name, table in declared_tables()}
    return {name: found[name] for name in TABLES}


def check_documented(name: str, table: pd.DataFrame) -> None:
    """Raises UndocumentedColumn where a table has a column that is not described, or the other way round."""
    expected = [column.name for column in described()[name].every_column]
    unknown = sorted(set(table.columns) - set(expected))
    absent = sorted(set(expected) - set(table.columns))
    if unknown or absent:
        raise UndocumentedColumn(
            f"{name}: columns without a description: {', '.join(unknown) or 'none'}; described but not there:"
            f" {', '.join(absent) or 'none'}; mend the description beside the function that makes the table"
        )


def dictionary() -> str:
    """The data dictionary of all tables, in Markdown."""
    parts = [
        "# Data dictionary\n\nEvery table is there twice: as CSV for people, as Parquet for programs. GPU time is"
        " the sum of the durations of kernels and memory operations (on a CPU: of outermost ATen operators). What was"
        " not measured is empty, never zero. Every table but those of operators alone begins with the same columns:",
        _as_table(LEADING_COLUMNS),
    ]
    for name, table in described().items():
        parts += [f"## {name}\n\n{escaped(table.rows)}.", _as_table((*table.leading, *table.columns))]
    return "\n\n".join(parts) + "\n"


def _as_table(columns: tuple[Column, ...]) -> str:
    rows = tuple((code(column.name, in_table=True), column.unit, escaped(column.meaning)) for column in columns)
    return pipe_table(Table(("column", "unit", "meaning"), rows, first_right=3))
