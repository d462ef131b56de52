"""Tables as CSV, Markdown, JSON or Parquet, written to a complete file or to standard output."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_tables.clean_text import escaped_json, visible, with_clean_cells
from kernel_tables.markdown import compact_table, escaped
from kernel_tables.whole_files import written_whole

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "md", "json", "parquet")


def format_of(path: Path | None) -> str:
    """The format by the suffix of a file name; CSV for other suffixes."""
    suffix = path.suffix.removeprefix(".").lower() if path else ""
    return suffix if suffix in FORMATS else "csv"


def write_table(table: pd.DataFrame, path: Path | None, table_format: str) -> None:
    """Writes the table to `path`, completely or not at all, or to standard output if `path` is None."""
    _write(rendered(table, table_format), path)


def write_text(text: str, path: Path | None) -> None:
    """Writes the text to `path`, completely or not at all, or to standard output if `path` is None."""
    _write(text.encode(), path)


def _write(content: bytes, path: Path | None) -> None:
    if path is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with written_whole(path) as partial:
        partial.write_bytes(content)


def rendered(table: pd.DataFrame, table_format: str) -> bytes:
    """The table in one of FORMATS. A missing number is an empty cell; in JSON it is null, in Parquet missing."""
    if table_format == "parquet":
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        return buffer.getvalue()
    if table_format == "json":
        text = escaped_json(table.to_json(orient="records", indent=1, double_precision=15, force_ascii=False)) + "\n"
    elif table_format == "md":
        text = markdown(table)
    else:
        text = with_clean_cells(table).to_csv(index=False, lineterminator="\n")
    return text.encode()


def markdown(table: pd.DataFrame) -> str:
    """The table in Markdown, with names escaped; numbers are right-aligned, floats have three decimals."""
    right_indices = [index for index, column in enumerate(table.columns) if table[column].dtype.kind in "iuf"]
    filled = table.astype("object").where(table.notna(), None)
    rows = (list(map(_cell, row)) for row in filled.itertuples(index=False))
    return compact_table(list(map(_cell, table.columns)), rows, right_indices)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    return escaped(visible(" ".join(str(value).split())))
