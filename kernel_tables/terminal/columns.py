"""Text in columns of a given total width; and any table in such columns, as many as fit, in readable units."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from textwrap import fill
from unicodedata import combining, east_asian_width

import pandas as pd

from kernel_tables.clean_text import visible
from kernel_tables.units import duration

GAP = "  "  # between columns
CUT_MARK = "…"
MAX_CUT_RANK = 5  # columns with a higher drop_rank are dropped before texts are cut
MIN_TEXT_CHARS = 16  # to which texts of any table may be cut
KEY_COLUMNS = ("rank", "device", "step")  # numbers that identify a row; they are never dropped
DISPENSABLE_COLUMNS = {"process": 101, "thread": 100}  # their drop_rank
MISSING = "–"
ALL_COLUMNS = "--format csv prints all columns, to the nanosecond"


@dataclass(frozen=True)
class TextColumn:
    """A column of a table of texts.

    If there is no room, columns are dropped and texts are cut, in this order: columns with a `drop_rank` above
    MAX_CUT_RANK are dropped, the highest first; texts are cut to `min_chars`; other columns are dropped, except those
    with `drop_rank` 0. A text that would then look like another one is cut in the middle.
    """

    heading: str
    cells: Sequence[str]
    right: bool = True  # right-aligned, as numbers are; else left-aligned
    min_chars: int | None = None  # None: texts are not cut
    cut_start: bool = False  # texts are cut at the start, not at the end
    drop_rank: int = 0

    @property
    def width(self) -> int:
        return max(map(text_width, (self.heading, *self.cells)))


def aligned(columns: Sequence[TextColumn], width: int) -> str:
    """The columns with their headings as lines, not longer than `width` if texts can be cut and columns dropped."""
    columns = fitting([replace(column, cells=list(map(visible, column.cells))) for column in columns], width)
    widths = _widths(columns, width)
    texts = [
        _cut_differently((column.heading, *column.cells), column_width, column.cut_start)
        for column, column_width in zip(columns, widths, strict=True)
    ]
    return "".join(f"{_line(cells, columns, widths)}\n" for cells in zip(*texts, strict=True))


def text_width(text: str) -> int:
    """The width of a text in a terminal, where some characters are combined with others or take twice the room."""
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, width: int, at_start: bool = False) -> str:
    """The text, with its end or start replaced by CUT_MARK if it is wider than this."""
    if text_width(text) <= width:
        return text
    count, room = 0, width - 1  # how many characters stay, and the width that is left for more
    for character in reversed(text) if at_start else text:
        room -= text_width(character)
        if room < 0:
            break
        count += 1
    return CUT_MARK + text[len(text) - count :] if at_start else text[:count] + CUT_MARK


def _cut_differently(texts: Sequence[str], width: int, at_start: bool) -> list[str]:
    """The texts in this width; different texts that would look alike are cut in the middle instead."""
    short = {text: cut(text, width, at_start) for text in texts}
    counts = Counter(short.values())
    return [short[text] if counts[short[text]] == 1 else _without_middle(text, width) for text in texts]


def _without_middle(text: str, width: int) -> str:
    if text_width(text) <= width:
        return text
    end = cut(text, (width + 1) // 2, at_start=True)
    return cut(text, width + 1 - text_width(end)).removesuffix(CUT_MARK) + end


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit into this width, if necessary with cut texts."""
    columns = list(columns)
    while any(column.drop_rank for column in columns):
        candidate = max(columns, key=lambda column: column.drop_rank)
        needed = _total_width(columns) if candidate.drop_rank > MAX_CUT_RANK else _least_width(columns)
        if needed <= width:
            break
        columns.remove(candidate)
    return columns


def _total_width(columns: Sequence[TextColumn]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _least_width(columns: Sequence[TextColumn]) -> int:
    widths = [column.width if column.min_chars is None else min(column.width, column.min_chars) for column in columns]
    return sum(widths) + len(GAP) * (len(columns) - 1)


def _widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """The width of every column. Until all fit, the widest one whose texts may be cut is narrowed."""
    widths = [column.width for column in columns]
    excess = _total_width(columns) - width
    while excess > 0:
        cuttable = [
            i for i, column in enumerate(columns) if column.min_chars is not None and widths[i] > column.min_chars
        ]
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


def table_lines(table: pd.DataFrame, width: int) -> str:
    """The table in this width. Columns of numbers that are all zero or missing are left out, except KEY_COLUMNS. Then
    columns that do not fit are dropped, DISPENSABLE_COLUMNS first, then the last ones; a note below lists them."""
    text_count = sum(_is_text(table[name]) for name in table)
    columns = [
        _column(name, table[name], drop_rank)
        for drop_rank, name in enumerate(table, start=1 - text_count)  # later columns have higher ranks
        if name in KEY_COLUMNS or _is_text(table[name]) or table[name].fillna(0).any()
    ]
    fitting_columns = fitting(columns, width)
    dropped = [column.heading for column in columns if column not in fitting_columns]
    note = fill(f"without {', '.join(dropped)}; {ALL_COLUMNS}", width) + "\n" if dropped else ""
    return aligned(fitting_columns, width) + note


def _is_text(cells: pd.Series) -> bool:
    return cells.dtype.kind not in "iuf"


def _column(name: str, cells: pd.Series, drop_rank: int) -> TextColumn:
    if _is_text(cells):  # never dropped
        texts = cells.astype(object).where(cells.notna(), MISSING).map(str).tolist()
        return TextColumn(name, texts, right=False, min_chars=MIN_TEXT_CHARS)
    if name in DISPENSABLE_COLUMNS or name in KEY_COLUMNS:
        return TextColumn(name, list(map(str, cells)), drop_rank=DISPENSABLE_COLUMNS.get(name, 0))
    numbers = cells.astype("float64").tolist()
    if name.endswith("_ns"):
        heading = name.removesuffix("_ns")
        heading = f"{heading} time" if heading in KEY_COLUMNS else heading.replace("_", " ")
        return TextColumn(heading, list(map(duration, numbers)), drop_rank=drop_rank)
    if name.startswith("us_"):
        return TextColumn(
            name.removeprefix("us_").replace("_", " "), [duration(1e3 * us) for us in numbers], drop_rank=drop_rank
        )
    return TextColumn(name.replace("_", " "), list(map(_number, numbers)), drop_rank=drop_rank)


def _number(value: float) -> str:
    if isnan(value):
        return MISSING
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"
