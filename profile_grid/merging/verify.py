"""What differs between a table as its capture gives it and the same table on disk."""

from __future__ import annotations

import io
from itertools import zip_longest
from pathlib import Path

import pandas as pd

from kernel_tables.clean_text import with_clean_cells

SHOWN = 120  # characters of a line or value in a message


def table_differences(made: pd.DataFrame, stem: Path) -> list[str]:
    """One line for STEM.csv and one for STEM.parquet, where that file is not what the capture gives."""
    found = [csv_difference(made, stem.with_suffix(".csv")), parquet_difference(made, stem.with_suffix(".parquet"))]
    return [difference for difference in found if difference]


def csv_difference(made: pd.DataFrame, path: Path) -> str | None:
    """How many lines differ, and the first of them; None where none does."""
    if not path.exists():
        return f"{path} is missing"
    expected, found = with_clean_cells(made).to_csv(index=False).splitlines(), path.read_text().splitlines()
    lines = [number for number, pair in enumerate(zip_longest(expected, found), start=1) if pair[0] != pair[1]]
    if not lines:
        return None
    first = lines[0]
    return (
        f"{path}: {len(lines)} line(s) differ; line {first} is {_shown(found, first - 1)},"
        f" its capture gives {_shown(expected, first - 1)}"
    )


def parquet_difference(made: pd.DataFrame, path: Path) -> str | None:
    """The columns that differ, and the first value that does; None where none does."""
    if not path.exists():
        return f"{path} is missing"
    expected, found = _as_read(made), pd.read_parquet(path)
    if list(expected.columns) != list(found.columns) or len(expected) != len(found):
        return f"{path}: {_shape(found)}, its capture gives {_shape(expected)}"
    differing = [column for column in expected if not expected[column].equals(found[column])]
    if not differing:
        return None
    column = differing[0]
    here, there = found[column].astype(str), expected[column].astype(str)
    rows = [row for row in range(len(found)) if here[row] != there[row]]
    where = (
        f"row {rows[0]} of {column} is {here[rows[0]][:SHOWN]}, its capture gives {there[rows[0]][:SHOWN]}"
        if rows
        else (f"{column} is {found[column].dtype}, its capture gives {expected[column].dtype}")
    )
    return f"{path}: column(s) {', '.join(differing)} differ; {where}"


def _as_read(table: pd.DataFrame) -> pd.DataFrame:
    """The table after a way through Parquet, which knows fewer types than pandas."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return pd.read_parquet(buffer)


def _shape(table: pd.DataFrame) -> str:
    return f"{len(table)} rows of {len(table.columns)} columns"


def _shown(lines: list[str], index: int) -> str:
    return repr(lines[index][:SHOWN]) if index < len(lines) else "not there"
