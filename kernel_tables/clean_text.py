"""Text from a capture, as it is written to where a terminal or a spreadsheet reads it. Nothing heavy is imported.

A name may hold anything: a carriage return that breaks a row, a sequence that recolours a terminal, a formula. What
cannot be seen is written as an escape, `\\x1b`; in CSV, text that a spreadsheet would compute (=, +, -, @ first) has an
apostrophe in front, and so has text that begins with one: who reads it back takes one apostrophe off. JSON and Parquet
hold the exact names. Numbers, and names without any of this, stay as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Control characters, marks that change the direction of text, ends of lines, halves of surrogate pairs.
UNSEEN = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
NOT_VISIBLE = re.compile(f"[\n{UNSEEN}]")
NOT_VISIBLE_IN_LINES = re.compile(f"[{UNSEEN}]")
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
MADE_TEXT_BY_AN_APOSTROPHE = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "'")  # full-width ones too


def visible(text: str) -> str:
    """The text on one line, with an escape in the place of each character that cannot be seen."""
    return NOT_VISIBLE.sub(lambda found: _escape(found[0]), text)


def visible_lines(text: str) -> str:
    """The same of a text whose ends of lines stay."""
    return NOT_VISIBLE_IN_LINES.sub(lambda found: _escape(found[0]), text)


def in_a_cell(text: str) -> str:
    """The text as a cell of CSV: visible, and no formula."""
    text = visible(text)
    return f"'{text}" if text.startswith(MADE_TEXT_BY_AN_APOSTROPHE) else text


def with_clean_cells(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every text as it may stand in CSV; the same object where nothing has to be changed."""
    changed = {name: _clean(table[name]) for name in table.columns if table[name].dtype.kind not in "biufcmM"}
    changed = {name: column for name, column in changed.items() if column is not None}
    return table.assign(**changed) if changed else table


def in_json(text: str) -> str:
    """JSON with an escape for each character that cannot be seen; it means the same."""
    return NOT_VISIBLE_IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _clean(column: pd.Series) -> pd.Series | None:
    """The column with clean texts, None where all are clean."""
    texts = [value for value in column.unique() if isinstance(value, str)]
    clean = {text: in_a_cell(text) for text in texts}
    if all(text == cell for text, cell in clean.items()):
        return None
    return column.astype(object).map(lambda value: clean.get(value, value) if isinstance(value, str) else value)


def _escape(character: str) -> str:
    number = ord(character)
    return SHORT_ESCAPES.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")
