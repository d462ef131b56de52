"""The Parquet tables of an archive, of which none may fill the memory: a file of 300 bytes can hold 20 GB.

What repeats takes no room in such a file. Its own list of contents tells how many values there are, and that is looked
at first. It does not tell how often a long text is repeated, and it may lie; so all tables are read once, by a process
that gets no more memory than a limit.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MOST_BYTES = 4 * 2**30  # of all tables together, once they are read; those of 6,000 runs take 0.7 GB
MEMORY_BYTES = 6 * 2**30  # of the process that reads one after the other
VALUE_BYTES = 8
TEXTS = (pa.types.is_string, pa.types.is_large_string)
CELLS = (*TEXTS, pa.types.is_primitive, pa.types.is_null)


class UnusableTable(ValueError):
    """A file cannot be read as Parquet; the message names it and says why."""


class TooLarge(ValueError):
    """Tables would take more memory than those of any results; the message says which, and how much."""


def read_columns(folder: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The columns of these Parquet files below FOLDER by name, each of which has been read as a whole.

    Raises TooLarge at the first with which they take more than MOST_BYTES, UnusableTable where one cannot be read.
    """
    columns, declared, taken = {}, 0, 0
    with memory_limited(MEMORY_BYTES):
        for name in names:
            with _named(name):
                declared += _declared_bytes(folder / name)
            _require_room(name, declared)
        for name in names:
            with _named(name):
                table = pq.read_table(folder / name)
                taken += sum(map(_bytes_of, table.columns))
            _require_room(name, taken)
            columns[name] = table.column_names
    return columns


@contextmanager
def memory_limited(most: int) -> Iterator[None]:
    """A block in which this process gets MemoryError where its own memory would exceed so many bytes; an operating
    system that does not count them (RLIMIT_DATA) sets no limit."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (before, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([most, *bounds]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _declared_bytes(path: Path) -> int:
    """Bytes that a file takes at least when it is read, by its own list of contents: what its pages hold once they are
    unpacked, or its values where these are more."""
    contents = pq.read_metadata(path)
    groups = [contents.row_group(number) for number in range(contents.num_row_groups)]
    values = sum(group.column(number).num_values for group in groups for number in range(group.num_columns))
    rows = max(contents.num_rows, sum(group.num_rows for group in groups))
    unpacked = sum(group.total_byte_size for group in groups)
    return max(unpacked, VALUE_BYTES * max(values, rows * contents.num_columns))


def _bytes_of(column: pa.ChunkedArray) -> int:
    """Bytes of a column, of categories with the text of every row: they become texts where they are used. Raises
    ValueError for a column that is none of a table of results, such as a list, whose categories nothing here counts."""
    is_categories = pa.types.is_dictionary(column.type)
    own = column.type.value_type if is_categories else column.type
    if not any(is_one(own) for is_one in CELLS):
        raise ValueError(f"a column holds {own}, and those of results hold numbers and texts")
    if not is_categories or not any(is_one(own) for is_one in TEXTS):
        return column.nbytes
    lengths = (pc.take(pc.binary_length(chunk.dictionary), chunk.indices) for chunk in column.chunks)
    return column.nbytes + sum(pc.sum(own).as_py() or 0 for own in lengths)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """What goes wrong inside is told of the file of this name."""
    try:
        yield
    except MemoryError as error:
        raise _too_large(name, f"more than {MEMORY_BYTES / 2**30:.0f} GiB") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UnusableTable(f"{name}: {error}") from error


def _require_room(name: str, taken: int) -> None:
    if taken > MOST_BYTES:
        raise _too_large(name, f"{taken / 2**30:,.0f} GiB")


def _too_large(name: str, size: str) -> TooLarge:
    most = f"{MOST_BYTES / 2**30:.0f} GiB"
    return TooLarge(f"with {name} its tables take {size} of memory, and those of results no more than {most}")
