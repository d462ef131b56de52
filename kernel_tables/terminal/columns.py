"""Columns of text side by side in a given width, and any table in them: readable units, as many columns as fit."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from unicodedata import combining, east_asian_width

import pandas as pd

from kernel_tables.clean_text import visible
from kernel_tables.units import duration

GAP = "  "
LEFT_OUT = "…"
LUXURY = 5


@dataclass(frozen=True)
class TextColumn:
    """A column, numbers right-aligned and texts left-aligned.

    Texts may be cut to `least` characters: at the end, at the start if `cut_start`, or in the middle if two texts would
    look alike. If there is no room, columns are dropped by falling `rank`, those above LUXURY before any text is cut;
    columns of rank 0 stay.
    """

    heading: str
    cells: Sequence[str]
    right: bool = True
    least: int | None = None
    cut_start: bool = False
    rank: int = 0

    @property
    def width(self) -> int:
        return max(map(text_width, (self.heading, *self.cells)))


def aligned(columns: Sequence[TextColumn], width: int) -> str:
    """The columns below their headings, in lines of at most `width` if enough texts and columns can be cut."""
    columns = fitting([replace(column, cells=list(map(visible, column.cells))) for column in columns], width)
    widths = _widths(columns, width)
    texts = [
        _cut_differently((column.heading, *column.cells), width, column.cut_start)
        for column, width in zip(columns, widths, strict=True)
    ]
    return "".join(f"{_line(cells, columns, widths)}\n" for cells in zip(*texts, strict=True))


def text_width(text: str) -> int:
    """The number of terminal cells that a text takes."""
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def cut(text: str, width: int, at_start: bool = False) -> str:
    """The text in this width: a mark replaces what is cut from its end or start."""
    if text_width(text) <= width:
        return text
    kept, room = "", width - 1
    for sign in reversed(text) if at_start else text:
        room -= text_width(sign)
        if room < 0:
            break
        kept = sign + kept if at_start else kept + sign
    return LEFT_OUT + kept if at_start else kept + LEFT_OUT


def _cut_differently(texts: Sequence[str], width: int, at_start: bool) -> list[str]:
    """The texts in this width; different texts that would look alike are cut in the middle instead."""
    short = {text: cut(text, width, at_start) for text in texts}
    alike = Counter(short.values())
    return [short[text] if alike[short[text]] == 1 else _without_middle(text, width) for text in texts]


def _without_middle(text: str, width: int) -> str:
    if text_width(text) <= width:
        return text
    end = cut(text, (width + 1) // 2, at_start=True)
    return cut(text, width + 1 - text_width(end)).removesuffix(LEFT_OUT) + end


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit into this width, if necessary with texts cut to their least width."""
    columns = list(columns)
    while any(column.rank for column in columns):
        dropped = max(columns, key=lambda column: column.rank)
        if (_full_width(columns) if dropped.rank > LUXURY else _least_width(columns)) <= width:
            break
        columns.remove(dropped)
    return columns


def _full_width(columns: Sequence[TextColumn]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _least_width(columns: Sequence[TextColumn]) -> int:
    least = [column.width if column.least is None else min(column.width, column.least) for column in columns]
    return sum(least) + len(GAP) * (len(columns) - 1)


def _widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """The width of every column; the widest text column is narrowed first."""
    widths = [column.width for column in columns]
    excess = _full_width(columns) - width
    while excess > 0:
        cuttable = [i for i, column in enumerate(columns) if column.least is not None and widths[i] > column.least]
        if not cuttable:
            break
        widest = max(cuttable, key=widths.__getitem__)
        widths[widest] -= 1
        excess -= 1
    return widths


def _line(cells: Sequence[str], columns: Sequence[TextColumn], widths: Sequence[int]) -> str:
    parts = []
    for text, column, width in zip(cells, columns, widths, strict=True):
        space = " " * (width - text_width(text))
        parts.append(space + text if column.right else text + space)
    return GAP.join(parts).rstrip()


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
