"""Any table in a terminal: readable units, and as many columns as fit."""

from textwrap import fill

import pandas as pd

from kernel_tables.terminal.columns import TextColumn, aligned, fitting
from kernel_tables.units import duration

LEAST_TEXT = 16
KEYS = ("rank", "device", "step")  # numbers that identify a row; they are never dropped
FIRST_TO_GO = {"process": 101, "thread": 100}
ABSENT = "–"
ALL_COLUMNS = "--format csv prints all columns, to the nanosecond"


def table_lines(table: pd.DataFrame, width: int) -> str:
    """The table in this width. Columns of zeros are left out, then the last columns that do not fit, which the last
    line lists."""
    columns = [
        _column(name, table[name], rank)
        for rank, name in enumerate(table.columns, start=1 - sum(map(_is_text, map(table.get, table.columns))))
        if _is_informative(name, table[name])
    ]
    fitting_columns = fitting(columns, width)
    left_out = [column.heading for column in columns if column not in fitting_columns]
    note = fill(f"without {', '.join(left_out)}; {ALL_COLUMNS}", width) + "\n" if left_out else ""
    return aligned(fitting_columns, width) + note


def _is_text(cells: pd.Series) -> bool:
    return cells.dtype.kind not in "iuf"


def _is_informative(name: str, cells: pd.Series) -> bool:
    return name in KEYS or _is_text(cells) or bool(cells.fillna(0).any())


def _column(name: str, cells: pd.Series, rank: int) -> TextColumn:
    if _is_text(cells):
        texts = [ABSENT if is_none else str(cell) for cell, is_none in zip(cells, cells.isna(), strict=True)]
        return TextColumn(name, texts, right=False, least=LEAST_TEXT)
    if name in FIRST_TO_GO or name in KEYS:
        return TextColumn(name, list(map(str, cells)), rank=FIRST_TO_GO.get(name, 0))
    numbers = cells.astype("float64").tolist()
    if name.endswith("_ns"):
        heading = name.removesuffix("_ns")
        heading = f"{heading} time" if heading in KEYS else heading.replace("_", " ")
        return TextColumn(heading, list(map(duration, numbers)), rank=rank)
    if name.startswith("us_"):
        return TextColumn(name.removeprefix("us_").replace("_", " "), [duration(1e3 * us) for us in numbers], rank=rank)
    return TextColumn(name.replace("_", " "), list(map(_number, numbers)), rank=rank)


def _number(value: float) -> str:
    if value != value:
        return ABSENT
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"
