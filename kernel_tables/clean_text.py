"""Text of a capture, escaped for terminals and spreadsheets. Imports nothing heavy.

A name may contain anything: a carriage return that breaks a row, a sequence that recolours a terminal, a formula.
Invisible characters are written as an escape, `\\x1b`. In CSV, text that a spreadsheet would compute (it begins with =,
+, - or @) gets an apostrophe in front, and so does text that begins with one; remove one apostrophe to get the text
back. JSON and Parquet contain the exact names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Control characters, marks that change the direction of text, ends of lines, halves of surrogate pairs.
INVISIBLE = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
NOT_VISIBLE = re.compile(f"[\n{INVISIBLE}]")
NOT_VISIBLE_IN_LINES = re.compile(f"[{INVISIBLE}]")
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
NEEDS_APOSTROPHE = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "'")  # full-width ones too


def visible(text: str) -> str:
    """The text on one line, with invisible characters escaped."""
    return NOT_VISIBLE.sub(lambda match: _escape(match[0]), text)


def visible_lines(text: str) -> str:
    """The same for a text of several lines."""
    return NOT_VISIBLE_IN_LINES.sub(lambda match: _escape(match[0]), text)


def in_a_cell(text: str) -> str:
    """The text as a cell of CSV: visible, and not a formula."""
    text = visible(text)
    return f"'{text}" if text.startswith(NEEDS_APOSTROPHE) else text


def with_clean_cells(table: pd.DataFrame) -> pd.DataFrame:
    """The table with all texts as cells of CSV; the same object if nothing changes."""
    changed = {name: _clean(table[name]) for name in table.columns if table[name].dtype.kind not in "biufcmM"}
    changed = {name: column for name, column in changed.items() if column is not None}
    return table.assign(**changed) if changed else table


def in_json(text: str) -> str:
    """The JSON with invisible characters escaped; its value is the same."""
    return NOT_VISIBLE_IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _clean(column: pd.Series) -> pd.Series | None:
    """The column with clean texts, None if all are clean."""
    texts = [value for value in column.unique() if isinstance(value, str)]
    clean = {text: in_a_cell(text) for text in texts}
    if all(text == cell for text, cell in clean.items()):
        return None
    return column.astype(object).map(lambda value: clean.get(value, value) if isinstance(value, str) else value)


def _escape(character: str) -> str:
    number = ord(character)
    return SHORT_ESCAPES.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
