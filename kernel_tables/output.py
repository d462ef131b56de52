"""Tables as CSV, Markdown, JSON or Parquet, in a file or on standard output; and text of captures made harmless.

A name may contain anything: a carriage return that breaks a row, a sequence that recolours a terminal, a formula.
Invisible characters are written as an escape, `\\x1b`. In CSV, text that a spreadsheet would compute (it begins with =,
+, - or @) gets an apostrophe in front, and so does text that begins with one; remove one apostrophe to get the text
back. JSON and Parquet contain the exact names.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_tables.files import written_whole

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.tables import Table

FORMATS = ("csv", "md", "json", "parquet")
# Control characters, marks of byte order and of the direction of text, ends of lines, halves of surrogate pairs.
INVISIBLE = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"


def write_table(table: Table | pd.DataFrame, path: Path | None, table_format: str) -> None:
    """Writes the table in one of FORMATS to `path`, completely or not at all; to standard output if that is None.

    A missing number is an empty cell; in JSON it is null, in Parquet missing."""
    if table_format == "parquet":
        from kernel_tables.tables import as_frame

        write_text(as_frame(table).to_parquet(index=False), path)
        return
    columns = columns_of(table)
    rows = zip(*columns.values(), strict=True)
    if table_format == "json":
        text = as_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif table_format == "md":
        kinds = [getattr(getattr(table[name], "dtype", None), "kind", "O") for name in columns]
        right = [index for index, kind in enumerate(kinds) if kind in "iuf"]
        text = compact_table(list(map(_cell, columns)), (map(_cell, row) for row in rows), right)
    else:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([csv_cell(value) if isinstance(value, str) else value for value in row] for row in rows)
        text = buffer.getvalue()
    write_text(text, path)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else escaped(value)


def write_text(text: str | bytes, path: Path | None) -> None:
    """Writes the text to `path`, completely or not at all; to standard output if that is None."""
    content = text if isinstance(text, bytes) else text.encode()
    if path is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with written_whole(path) as partial:
        partial.write_bytes(content)


def columns_of(table: Table | pd.DataFrame) -> dict[str, list]:
    """The columns of a table by name, as Python's values; a missing one is None."""
    lists = {name: table[name] if isinstance(table[name], list) else table[name].tolist() for name in table}
    # pd.NA is compared first: it has no truth value. NaN is not itself.
    return {
        name: [None if type(value).__name__ == "NAType" or value != value else value for value in values]
        for name, values in lists.items()
    }


def as_json(value: object, indent: int | None = 1) -> str:
    """The value as JSON, whose invisible characters are escaped; on one line with `indent` None."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None)
    return re.sub(f"[{INVISIBLE}]", lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def compact_table(headings: Sequence[str], rows: Iterable[Iterable[str]], right_indices: Collection[int] = ()) -> str:
    """Cells of Markdown as a pipe table. The columns with `right_indices` are right-aligned."""
    dashes = ["---:" if index in right_indices else "---" for index in range(len(headings))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, dashes, *rows))


def escaped(text: object) -> str:
    """The text as Markdown, with pandoc's extensions, that renders as the text itself, also in a table."""
    emoji = r"(?<!\d):(?=[\w+-]+:)|:(?=[a-z+_-][\w+-]*:)"  # and below, a mention, and the colon of a link
    line = re.sub(rf"[&<|$~^]|@(?=\w)|:(?=//)|{emoji}", lambda sign: f"&#{ord(sign[0])};", visible(str(text)))
    line = re.sub(r"[\\`*\[\]>]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+=-]", r"\\\g<0>", line)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", line)  # the number of a list


def say(*sentences: str, command: str = "") -> None:
    """Prints each sentence on one line of standard error, below the name of the program and of its command, if any."""
    for sentence in sentences:
        line = visible(" ".join(sentence.split()))
        print(f"kernel-tables {command}: {line}" if command else f"kernel-tables: {line}", file=sys.stderr, flush=True)


def code(text: str, in_table: bool = False) -> str:
    """The text as a code span, with pipes escaped if it is `in_table`; "(no name)" if it is blank."""
    line = visible(text)
    if not line.strip():
        return "(no name)"
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    padding = " " if line[0] in "` " or line[-1] in "` " else ""
    span = f"{fence}{padding}{line}{padding}{fence}"
    return span.replace("|", "\\|") if in_table else span


def visible(text: str, keep_newlines: bool = False) -> str:
    """The text with invisible characters escaped; on one line unless it keeps its newlines."""
    invisible = f"[{INVISIBLE}]" if keep_newlines else f"[\n{INVISIBLE}]"
    return re.sub(invisible, lambda match: match[0].encode("unicode_escape").decode(), text)


def csv_cell(text: str) -> str:
    """The text as a cell of CSV: visible, and not a formula."""
    text = visible(text)
    starts = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "'")  # also full-width = + - @
    return f"'{text}" if text.startswith(starts) else text


def duration(ns: float) -> str:
    """A time with three digits and its unit: 1.23 s, 45.6 ms, 789 µs, 12 ns; "–" for NaN."""
    if isnan(ns):
        return "–"
    unit_ns, unit = next((pair for pair in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if abs(ns) >= pair[0]), (1, "ns"))
    value = ns / unit_ns
    decimals = 0 if unit_ns == 1 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{decimals}f} {unit}"


def percent(share: float) -> str:
    """A share of 1 as 45.6 %; "< 0.1 %" for a small one that is not 0."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:z.1f} %".replace("-", "−")
