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

# Control characters, marks of byte order and of the direction of text, ends of lines, halves of surrogate pairs.
INVISIBLE_CHARACTERS = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
INVISIBLE = re.compile(f"[{INVISIBLE_CHARACTERS}]")
INVISIBLE_OR_NEWLINE = re.compile(f"[\n{INVISIBLE_CHARACTERS}]")
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "'")  # also full-width = + - @


def visible(text: str) -> str:
    """The text on one line, with invisible characters escaped."""
    return INVISIBLE_OR_NEWLINE.sub(lambda match: _escape(match[0]), text)


def visible_lines(text: str) -> str:
    """The text with invisible characters escaped, except newlines (\\n)."""
    return INVISIBLE.sub(lambda match: _escape(match[0]), text)


def csv_cell(text: str) -> str:
    """The text as a cell of CSV: visible, and not a formula."""
    text = visible(text)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def with_clean_cells(table: pd.DataFrame) -> pd.DataFrame:
    """The table with all texts as cells of CSV; the same object if nothing changes."""
    changed = {}
    for name in table.columns:
        if table[name].dtype.kind in "biufcmM":  # numbers and times
            continue
        cells = {text: csv_cell(text) for text in table[name].unique() if isinstance(text, str)}
        if any(text != cell for text, cell in cells.items()):
            values = table[name].astype(object)
            changed[name] = [cells[value] if isinstance(value, str) else value for value in values]
    return table.assign(**changed) if changed else table


def escaped_json(text: str) -> str:
    """The JSON with its invisible characters escaped; its value is the same."""
    return INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(character: str) -> str:
    number = ord(character)
    return SHORT_ESCAPES.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
