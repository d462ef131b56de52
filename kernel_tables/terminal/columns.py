"""Columns of text beside each other, in a width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from unicodedata import combining, east_asian_width

from kernel_tables.clean_text import visible

GAP = "  "
LEFT_OUT = "…"
LUXURY = 5


@dataclass(frozen=True)
class TextColumn:
    """A column: numbers stand right, texts left. A text may be cut to `least` characters, at its start where its end
    tells more, in its middle where another would look like it. Where there is no room, columns go by `rank`, the
    highest first, those of more than LUXURY before a text is cut; those of rank 0 stay."""

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
    """The columns below their headings, no line longer than `width` where texts can be cut and columns left out."""
    columns = fitting([replace(one, cells=[visible(cell) for cell in one.cells]) for one in columns], width)
    widths = _widths(columns, width)
    texts = [
        _cut_apart((one.heading, *one.cells), width, one.cut_start) for one, width in zip(columns, widths, strict=True)
    ]
    return "".join(f"{_line(cells, columns, widths)}\n" for cells in zip(*texts, strict=True))


def text_width(text: str) -> int:
    """How many places a text takes in a terminal."""
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def cut(text: str, width: int, at_start: bool = False) -> str:
    """The text in this width: what is left out, at its end or its start, is a mark."""
    if text_width(text) <= width:
        return text
    kept, room = "", width - 1
    for sign in reversed(text) if at_start else text:
        room -= text_width(sign)
        if room < 0:
            break
        kept = sign + kept if at_start else kept + sign
    return LEFT_OUT + kept if at_start else kept + LEFT_OUT


def _cut_apart(texts: Sequence[str], width: int, at_start: bool) -> list[str]:
    """The texts in this width; where two would be alike without being so, their middle is left out."""
    short = {text: cut(text, width, at_start) for text in texts}
    alike = Counter(short.values())
    return [short[text] if alike[short[text]] == 1 else _without_middle(text, width) for text in texts]


def _without_middle(text: str, width: int) -> str:
    if text_width(text) <= width:
        return text
    end = cut(text, (width + 1) // 2, at_start=True)
    return cut(text, width + 1 - text_width(end)).removesuffix(LEFT_OUT) + end


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns for which there is room: the last ones with texts cut as far as they may be."""
    columns = list(columns)
    while any(one.rank for one in columns):
        first = max(columns, key=lambda one: one.rank)
        if (_whole(columns) if first.rank > LUXURY else _least(columns)) <= width:
            break
        columns.remove(first)
    return columns


def _whole(columns: Sequence[TextColumn]) -> int:
    return sum(one.width for one in columns) + len(GAP) * (len(columns) - 1)


def _least(columns: Sequence[TextColumn]) -> int:
    least = [one.width if one.least is None else min(one.width, one.least) for one in columns]
    return sum(least) + len(GAP) * (len(columns) - 1)


def _widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """The width of every column; the widest text gives first."""
    widths = [one.width for one in columns]
    over = _whole(columns) - width
    while over > 0:
        more = [place for place, one in enumerate(columns) if one.least is not None and widths[place] > one.least]
        if not more:
            break
        widest = max(more, key=lambda place: widths[place])
        widths[widest] -= 1
        over -= 1
    return widths


def _line(cells: Sequence[str], columns: Sequence[TextColumn], widths: Sequence[int]) -> str:
    parts = []
    for text, column, width in zip(cells, columns, widths, strict=True):
        space = " " * (width - text_width(text))
        parts.append(space + text if column.right else text + space)
    return GAP.join(parts).rstrip()
