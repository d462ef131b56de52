"""Differences between a file on disk and the file that would be made now."""

import gzip
from itertools import zip_longest
from pathlib import Path

import pandas as pd

MAX_CHARS = 120  # characters of a line or value in a message


def file_difference(wanted: Path, path: Path) -> str | None:
    """One line on what differs in the file at `path` from a file that was just made; None if nothing differs."""
    if not path.exists():
        return f"{path} is missing"
    if wanted.suffix == ".parquet":
        return parquet_difference(pd.read_parquet(wanted), path)
    expected, actual = _content(wanted), _content(path)
    if expected == actual:
        return None
    try:
        return text_difference(expected.decode(), actual.decode(), path)
    except UnicodeDecodeError:
        return f"{path}: its {len(actual)} bytes are not the {len(expected)} that ought to be there"


def text_difference(expected: str, actual: str, path: Path) -> str:
    """The number of lines that differ, and the first of them."""
    pairs = list(zip_longest(expected.split("\n"), actual.split("\n")))
    lines = [number for number, (wanted, there) in enumerate(pairs, start=1) if wanted != there]
    wanted, there = pairs[lines[0] - 1]
    return f"{path}: {len(lines)} line(s) differ; line {lines[0]} is {_shown(there)} and ought to be {_shown(wanted)}"


def parquet_difference(expected: pd.DataFrame, path: Path) -> str | None:
    """The columns that differ, and the first value that does; None if nothing differs."""
    try:
        actual = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # Arrow's errors are of either kind
        return f"{path} cannot be read ({str(error).splitlines()[0]})"
    if list(expected.columns) != list(actual.columns) or len(expected) != len(actual):
        return f"{path}: {_shape(actual)}, and {_shape(expected)} ought to be there"
    differing = [column for column in expected if not expected[column].equals(actual[column])]
    if not differing:
        return None
    return f"{path}: column(s) {', '.join(differing)} differ; {_first_value(expected, actual, differing[0])}"


def _first_value(expected: pd.DataFrame, actual: pd.DataFrame, column: str) -> str:
    wanted, there = expected[column].astype(str), actual[column].astype(str)
    rows = [row for row in range(len(actual)) if wanted[row] != there[row]]
    if not rows:
        return f"{column} is {actual[column].dtype} and ought to be {expected[column].dtype}"
    return f"row {rows[0]} of {column} is {there[rows[0]][:MAX_CHARS]} and ought to be {wanted[rows[0]][:MAX_CHARS]}"


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is packed, since packing stores its time."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError):
        return b""


def _shape(table: pd.DataFrame) -> str:
    return f"{len(table)} rows of {len(table.columns)} columns"


def _shown(line: str | None) -> str:
    return "not there" if line is None else repr(line[:MAX_CHARS])
