"""The columns of one table, built while its rows are read."""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.errors import ImpossibleCapture, impossible
from kernel_tables.reading import large_queries, schema, small_queries
from kernel_tables.reading.times import TimeCheck

MIN_ROOM = 65536  # values
NARROW_COLUMNS = ("correlation", "label", "text_id", "name_id", "device", "stream")  # mostly within 32 bits; not summed
MAX_NARROW = (1 << 31) - 1
CONSTANT_COLUMNS = ("process", "thread", "device", "stream")  # often all values are equal

Columns = dict  # by name a numpy array; `text` is a pyarrow array
TextConverter = Callable[[pa.StringArray], pa.Array]


class GrowingColumn:
    """Integers in order of arrival, MISSING for NULL."""

    def __init__(self, expected_rows: int = 0, *, narrow: bool = False, constant: bool = False) -> None:
        """With `narrow`, integers have 32 bits as long as all are from MISSING to MAX_NARROW. With `constant`, they
        take no memory as long as all are equal. There is room for `expected_rows` from the beginning, so that growing
        needs no copies; room takes no memory before it is used."""
        self._min_room = max(expected_rows, MIN_ROOM)
        self._values = np.empty(1 if constant else self._min_room, np.int32 if narrow else np.int64)
        self._is_constant = constant  # then only the first of _values is used
        self._length = 0

    def append(self, values: pa.Array) -> None:
        """Appends integers or NULLs."""
        known = values.fill_null(schema.MISSING) if values.null_count else values
        self._append(known.to_numpy(), growth=2)

    def extend(self, other: "GrowingColumn") -> None:
        """Appends the integers of another column."""
        self._append(other.values(), growth=1)

    def _append(self, values: np.ndarray, growth: int) -> None:
        """Appends integers; if there is no room, makes room for `growth` times the new length."""
        if not len(values):
            return
        end = self._length + len(values)
        is_narrow = self._values.dtype == np.int32
        if is_narrow and (values.min() < schema.MISSING or values.max() > MAX_NARROW):
            self._move(len(self._values), np.dtype(np.int64))
        if self._is_constant:
            if not self._length:
                self._values[0] = values[0]
            constant = self._values[0]
            if (values == constant).all():
                self._length = end
                return
            self._is_constant = False
            self._values = np.empty(max(growth * end, self._min_room), self._values.dtype)
            self._values[: self._length] = constant
        if end > len(self._values):
            self._move(growth * end, self._values.dtype)
        self._values[self._length : end] = values
        self._length = end

    def _move(self, length: int, dtype: np.dtype) -> None:
        """Moves the values to another array; NumPy's resize and astype would write to the unused room, too."""
        before, self._values = self._values, np.empty(length, dtype)
        self._values[: self._length] = before[: self._length]

    def values(self) -> np.ndarray:
        """All integers; read-only if the column is `constant` and all are equal. Nothing can be appended afterwards."""
        if self._is_constant and self._length:
            return np.broadcast_to(self._values[0], self._length)
        self._values.resize(self._length, refcheck=False)
        return self._values


class TableColumns:
    """Integer columns of one table, and its texts if requested; of all rows, or of those with some types."""

    def __init__(
        self, path: Path, table: str, names: list[str], time_check: TimeCheck, required: Collection[str],
        expected_rows: int, types: tuple[int, ...], convert_text: TextConverter | None,
    ):  # fmt: skip
        """The columns `names` of `table`, in the file that messages call `path`; `time_check` checks all rows.

        `required` are the columns that must not be NULL. With `types`, only rows with one of these values in the column
        `type` are kept. With `convert_text`, the column `text` is kept, too, converted.
        """
        self._path, self._table, self._time_check = path, table, time_check
        self._required, self._types, self._convert_text = required, types, convert_text
        self._columns = {
            name: GrowingColumn(expected_rows, narrow=name in NARROW_COLUMNS, constant=name in CONSTANT_COLUMNS)
            for name in names
        }
        self._texts: list[pa.Array] = []

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Adds the next rows. Raises ImpossibleCapture if a column holds no integers, or NULL if it is required."""
        if self._types:
            batch = self._rows_of_types(batch)
        columns = [self._integers(batch, name) for name in self._columns]
        self._time_check.add_batch(batch)
        for column, values in zip(self._columns.values(), columns, strict=True):
            column.append(values)
        if self._convert_text:
            self._texts.append(self._convert_text(large_queries.valid_text(batch["text"])))

    def extend(self, other: "TableColumns") -> None:
        """Adds the rows of `other`, which has no columns afterwards."""
        self._time_check.extend(other._time_check)
        for name, column in self._columns.items():
            column.extend(other._columns.pop(name))
        self._texts += other._texts

    def result(self) -> Columns:
        """The columns by name. Raises ImpossibleCapture for impossible times."""
        if findings := self._time_check.findings():
            raise ImpossibleCapture(self._path, findings)
        columns: dict[str, np.ndarray] = {name: column.values() for name, column in self._columns.items()}
        return columns | {"text": pa.chunked_array(self._texts)} if self._convert_text else columns

    def _rows_of_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the types. Not selected by SQL, which may search a damaged file forever without finding a row."""
        types = self._integers(batch, "type")
        is_kept = pc.is_in(types, value_set=pa.array(self._types, types.type))
        return batch if pc.all(is_kept).as_py() else batch.filter(is_kept)

    def _integers(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A column of the batch. Raises ImpossibleCapture if it does not hold integers, or holds NULL if required."""
        values = batch[name]
        if not pa.types.is_integer(values.type):
            raise impossible(
                self._path,
                "wrong_type",
                f"{name} of {self._table} holds {values.type}, not integers; the file is not nsys's, or damaged:"
                " export the report again",
            )
        if name in self._required and values.null_count:
            raise small_queries.damaged(self._path, f"{name} of {self._table} is NULL, which the table forbids")
        return values
