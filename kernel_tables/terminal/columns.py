"""Columns of text side by side, in a given width."""

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
