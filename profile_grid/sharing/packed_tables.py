"""Reads the Parquet tables of an archive with limited memory: a file of 300 bytes can hold 20 GB of repeated values.

The metadata of each file is checked first: it has the number of values. But it does not have the size of repeated
texts, and it may be wrong. So all tables are also read once, in a process whose memory is limited.
"""

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MAX_BYTES = 4 * 2**30  # of all tables in memory; those of 6,000 runs take 0.7 GB
MAX_PROCESS_BYTES = 6 * 2**30  # of the process that reads them, one at a time
MIN_VALUE_BYTES = 8
TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string)
CELL_TYPES = (*TEXT_TYPES, pa.types.is_primitive, pa.types.is_null)


class UnusableTable(ValueError):
    """A file cannot be read as Parquet; the message has its name and the reason."""


class TooLarge(ValueError):
    """The tables need more memory than those of any results. The message names the first table that does not fit."""


def read_columns(folder: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The names of the columns of these Parquet files below `folder`, by name of the file, after each was read
    completely. Raises TooLarge if they need more than MAX_BYTES of memory, UnusableTable if a file cannot be read, or
    holds something other than numbers and texts."""
    columns, declared_bytes, read_bytes = {}, 0, 0
    with memory_limited(MAX_PROCESS_BYTES):
        for name in names:
            with _errors_naming(name):
                declared_bytes += _declared_bytes(folder / name)
            _require_fits(name, declared_bytes)
        for name in names:
            with _errors_naming(name):
                table = pq.read_table(folder / name)
                read_bytes += sum(map(_column_bytes, table.columns))
            _require_fits(name, read_bytes)
            columns[name] = table.column_names
    return columns


@contextmanager
def memory_limited(max_bytes: int) -> Iterator[None]:
    """A block in which this process gets MemoryError if its memory would exceed max_bytes. No limit applies on
    operating systems that do not enforce RLIMIT_DATA."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (before, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([max_bytes, *bounds]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _declared_bytes(path: Path) -> int:
    """The least memory of a file's table, B, by its metadata: of its decompressed pages or of its values."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    values = sum(group.column(number).num_values for group in groups for number in range(group.num_columns))
    rows = max(metadata.num_rows, sum(group.num_rows for group in groups))
    unpacked = sum(group.total_byte_size for group in groups)
    return max(unpacked, MIN_VALUE_BYTES * max(values, rows * metadata.num_columns))


def _column_bytes(column: pa.ChunkedArray) -> int:
    """The memory of a column, B. Of categories, the text of every row counts as well, since they become texts when they
    are used. Raises ValueError for a type that tables of results do not have, such as a list."""
    is_categories = pa.types.is_dictionary(column.type)
    value_type = column.type.value_type if is_categories else column.type
    if not any(is_type(value_type) for is_type in CELL_TYPES):
        raise ValueError(f"a column holds {value_type}, and those of results hold numbers and texts")
    if not is_categories or not any(is_type(value_type) for is_type in TEXT_TYPES):
        return column.nbytes
    lengths = (pc.take(pc.binary_length(chunk.dictionary), chunk.indices) for chunk in column.chunks)
    return column.nbytes + sum(pc.sum(chunk_lengths).as_py() or 0 for chunk_lengths in lengths)


@contextmanager
def _errors_naming(name: str) -> Iterator[None]:
    """A block whose errors are raised as TooLarge or UnusableTable, with the name of the file."""
    try:
        yield
    except MemoryError as error:
        raise _too_large(name, f"more than {MAX_PROCESS_BYTES / 2**30:.0f} GiB") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UnusableTable(f"{name}: {error}") from error


def _require_fits(name: str, total_bytes: int) -> None:
    if total_bytes > MAX_BYTES:
        raise _too_large(name, f"{total_bytes / 2**30:,.0f} GiB")


def _too_large(name: str, size: str) -> TooLarge:
    limit = f"{MAX_BYTES / 2**30:.0f} GiB"
    return TooLarge(f"with {name} its tables need {size} of memory; those of results need at most {limit}")
