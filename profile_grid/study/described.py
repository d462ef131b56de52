"""How a table is described: what a row is, and the unit and meaning of every column; it stands beside the code that
makes the table. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profile_grid.study.dimensions import DIMENSIONS

if TYPE_CHECKING:
    import pandas as pd


SHARE = "of 1"  # the unit of a share, which people read in percent


@dataclass(frozen=True)
class Column:
    """One column: its unit ("" for none), and its meaning in one line."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Described:
    """One table: what a row is, and its columns after those with which it begins: its own `leading` ones, or as most
    tables do the run and the dimensions of a model."""

    rows: str
    columns: tuple[Column, ...]
    leading: tuple[Column, ...] = ()

    @property
    def every_column(self) -> tuple[Column, ...]:
        return (*(self.leading or LEADING_COLUMNS), *self.columns)


@dataclass(frozen=True)
class Shown:
    """A table as the page shows it with a question: its title, the table of results/tables that it is from, and of that
    the columns (None: all) and rows (None: all) that it has."""

    title: str
    source: str
    columns: tuple[str, ...] | None = None
    rows: Callable[[pd.DataFrame], pd.DataFrame] | None = None


@dataclass(frozen=True)
class SummaryTable:
    """A table that answers a question: the function that makes it of the merged tables, and its description."""

    make: Callable[..., pd.DataFrame]
    described: Described


def columns(text: str) -> tuple[Column, ...]:
    """Columns written as lines of "name | unit | meaning"."""
    return tuple(Column(*(part.strip() for part in line.split("|"))) for line in text.splitlines() if line.strip())


RUN = Column("run", "", "the run's dimensions in one name; the folder below results/runs")
LEADING_COLUMNS = (
    RUN,
    *(Column(dimension.key, dimension.unit, dimension.meaning) for dimension in DIMENSIONS),
)
PER_PASS = """
    gpu_time_ms | ms | GPU time in a single pass: the mean over the measured steps
    gpu_time_std_ms | ms | standard deviation (n − 1) of that between the measured steps
    invocations | | launches in a single pass: the mean over the measured steps
"""
SAME = """
    same_in_every_step | | whether every measured step had the same number of launches
"""
WHERE = """
    step | | number of the measured step, from 0; −1 in none
    phase | | range directly inside step: forward, loss, backward, optimizer, synchronize; (outside) for none
    range | | ranges inside the phase, outermost first, joined by " > "; empty directly in the phase
"""
