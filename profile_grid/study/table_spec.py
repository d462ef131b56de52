"""Declares a table: its name, its rows, and the dtype, unit and meaning of every column. Imports nothing heavy.

A declaration is in the module that makes the table. Tables are checked against it when they are written and read; the
data dictionary, headings with units and the schema are generated from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernel_tables.columns import BOOL, FLOAT, INT, TEXT, Column, columns
from profile_grid.errors import OutsideError
from profile_grid.study.dimensions import DIMENSIONS, Dimension

if TYPE_CHECKING:
    import pandas as pd


SHARE = "of 1"  # the unit of a share; documents show percent
PANDAS_DTYPES = {TEXT: "str", INT: "Int64", FLOAT: "float64", BOOL: "boolean"}


class WrongTable(OutsideError):
    """A table is not as declared; the message is one line."""


def column_of(dimension: Dimension) -> Column:
    """The column of a dimension."""
    return Column(dimension.key, INT if dimension.is_number else TEXT, dimension.unit, dimension.meaning)


RUN = Column("run", TEXT, "", "name of the run, from its dimensions; its folder below results/runs")
LEADING_COLUMNS = (RUN, *map(column_of, DIMENSIONS))


@dataclass(frozen=True)
class TableSpec:
    """One table: its name, what a row is, and its columns."""

    name: str
    row_meaning: str  # "One row per run"
    columns: tuple[Column, ...]  # after the leading ones
    make: Callable[..., pd.DataFrame] | None = None  # the table of an answer, from merged tables; None for a merged one
    leading: tuple[Column, ...] = LEADING_COLUMNS

    @property
    def names(self) -> list[str]:
        """The names of the columns after the leading ones."""
        return [column.name for column in self.columns]

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The leading columns and the others."""
        return (*self.leading, *self.columns)

    @property
    def all_names(self) -> list[str]:
        """The names of all columns."""
        return [column.name for column in self.all_columns]

    def as_in(self, *names: str) -> tuple[Column, ...]:
        """Columns with these names for another table that copies them; by default all after the leading ones."""
        by_name = {column.name: column for column in self.columns}
        return tuple(replace(by_name[name], meaning=f"as in {self.name}") for name in names or by_name)

    def copied(self, name: str, row_meaning: str) -> TableSpec:
        """The table of an answer with the rows and columns of this merged table."""
        return replace(
            self,
            name=name,
            row_meaning=row_meaning,
            columns=self.as_in(),
            make=lambda merged: merged[self.name].reset_index(drop=True),
        )

    def table(self, rows: Sequence = (), of_a_run: bool = False) -> pd.DataFrame:
        """A table of these rows, dicts or sequences in the order of the columns. With `of_a_run`, it is the table of
        one run, which has no leading columns."""
        import pandas as pd

        names = self.names if of_a_run else self.all_names
        return self.typed(pd.DataFrame(rows, columns=names))

    def empty(self) -> pd.DataFrame:
        """A table of one run that has no rows."""
        return self.table(of_a_run=True)

    def typed(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with the declared dtypes after the leading columns; any value may be missing."""
        return table.astype({column.name: PANDAS_DTYPES[column.dtype] for column in self.columns})

    def check(self, table: pd.DataFrame, expected: Sequence[str] | None = None) -> None:
        """Raises WrongTable unless the table has the declared columns, or those in `expected`, in this order, with
        values of their dtypes."""
        self._check_names(list(table.columns), list(self.all_names if expected is None else expected))
        self.check_dtypes(table)

    def _check_names(self, names: list[str], expected: list[str]) -> None:
        missing = [name for name in expected if name not in names]
        unknown = [name for index, name in enumerate(names) if name not in expected or name in names[:index]]
        if missing or unknown:
            raise WrongTable(
                f"table {self.name}: columns without a declaration, or twice: {', '.join(unknown) or 'none'};"
                f" declared and missing: {', '.join(missing) or 'none'}"
            )
        for index, (name, expected_name) in enumerate(zip(names, expected, strict=True)):
            if name != expected_name:
                raise WrongTable(
                    f"table {self.name}: column {index} (from 0) is expected to be {expected_name}, found {name}"
                )

    def check_dtypes(self, table: pd.DataFrame) -> None:
        """Raises WrongTable unless the values of every declared column have its dtype."""
        for column in self.all_columns:
            if column.name in table.columns and not column.fits(table[column.name]):
                value = table[column.name].dropna().tolist()[0]
                raise WrongTable(
                    f"table {self.name}: column {column.name} is expected to be {column.dtype}, found"
                    f" {table[column.name].dtype} such as {value!r}"
                )


@dataclass(frozen=True)
class PageTable:
    """A table of the page: its name and title there, and what it shows of the table `source`."""

    name: str
    title: str
    columns: tuple[str, ...] | None = None  # None for all
    select: Callable[[pd.DataFrame], pd.DataFrame] | None = None  # from the source, what is shown; None for all of it
    source_name: str | None = None

    @property
    def source(self) -> str:
        """The table of results/tables with its values: `source_name`, or its own name."""
        return self.source_name or self.name


PER_PASS = columns("""
    gpu_time_ms | float | ms | GPU time in a single pass: the mean over the measured steps
    gpu_time_std_ms | float | ms | standard deviation (n − 1) of that between the measured steps
    invocations | float | | launches in a single pass: the mean over the measured steps
""")
SAME_IN_EVERY_STEP = columns("""
    same_in_every_step | bool | | whether every measured step had the same number of launches
""")
RANGE_COLUMNS = columns("""
    step | int | | number of the measured step, from 0; −1 in none
    phase | text | | range directly inside step, such as forward, backward or optimizer; (outside) for none
    range | text | | ranges inside the phase, outermost first, joined by " > "; empty directly in the phase
""")
