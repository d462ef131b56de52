"""The columns of one table, built while its rows are read."""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.errors import ImpossibleCapture, impossible
from kernel_tables.reading import large_queries, schema, small_queries
from kernel_tables.reading.times import Times

MIN_LENGTH = 65536
# Seldom beyond 32 bits, and never summed.
NARROW_COLUMNS = ("correlation", "label", "text_id", "name_id", "device", "stream")
MAX_NARROW = (1 << 31) - 1
CONSTANT_COLUMNS = ("process", "thread", "device", "stream")  # often


class GrowingColumn:
    """Integers in order of arrival, MISSING for NULL."""

    def __init__(self, narrow: bool = False, constant: bool = False, rows: int = 0) -> None:
        """With `narrow`, they have 32 bits as long as all are from MISSING to MAX_NARROW. With `constant`, they take no
        memory as long as all are equal. With the expected number of `rows`, growing needs no copies; room takes no
        memory before it is used."""
        self._rows = max(rows, MIN_LENGTH)
        self._values = np.empty(1 if constant else self._rows, np.int32 if narrow else np.int64)
        self._is_constant = constant
        self._length = 0

    def append(self, values: pa.Array) -> None:
        """Appends integers or NULLs."""
        known = values.fill_null(schema.MISSING) if values.null_count else values
        self._append(known.to_numpy(), room=2)

    def extend(self, other: "GrowingColumn") -> None:
        """Appends the integers of another column."""
        self._append(other.values(), room=1)

    def _append(self, values: np.ndarray, room: int) -> None:
        """Appends integers; if there is no room, makes room for `room` times what is used then."""
        end = self._length + len(values)
        is_narrow = self._values.dtype == np.int32
        if is_narrow and len(values) and (values.min() < schema.MISSING or values.max() > MAX_NARROW):
            self._move(len(self._values), np.dtype(np.int64))
        if self._is_constant:
            self._values[0] = self._values[0] if self._length or not len(values) else values[0]
            if (values == self._values[0]).all():
                self._length = end
                return
            self._is_constant = False
            constant, self._values = self._values[0], np.empty(max(room * end, self._rows), self._values.dtype)
            self._values[: self._length] = constant
        if end > len(self._values):
            self._move(room * end, self._values.dtype)
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


Columns = dict  # of name to numpy array; `text` is a pyarrow array
TextMap = Callable[[pa.StringArray], pa.Array]


class TableColumns:
    """Integer columns of one table, and its texts if requested; all rows, or those of some types."""

    def __init__(
        self,
        path: Path,
        table: str,
        names: list[str],
        times: Times,
        required: Collection[str] = (),
        rows: int = 0,
        types: tuple[int, ...] = (),
        convert_text: TextMap | None = None,
    ):
        """The columns `names` of `table`, in the file that messages call `path`; `times` checks all rows.

        `required` are the columns that must not be NULL, `rows` is the expected number of rows. With `types`, only rows
        with one of these values in the column `type` are kept; `convert_text` converts the column `text`.
        """
        self._path, self._table = path, table
        self._columns = {name: GrowingColumn(name in NARROW_COLUMNS, name in CONSTANT_COLUMNS, rows) for name in names}
        self._times, self._required, self._types, self._convert_text = times, required, types, convert_text
        self._texts: list[pa.Array] = []

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Adds the next rows. Raises ImpossibleCapture if a column holds no integers, or NULL if it is required."""
        if self._types:
            batch = self._of_types(batch)
        columns = [self._integers(batch, name) for name in self._columns]
        self._times.check(batch)
        for column, values in zip(self._columns.values(), columns, strict=True):
            column.append(values)
        if self._convert_text:
            self._texts.append(self._convert_text(large_queries.valid_text(batch["text"])))

    def extend(self, other: "TableColumns") -> None:
        """Adds the rows that another one has read, which is empty afterwards."""
        self._times.add(other._times)
        for name, column in self._columns.items():
            column.extend(other._columns.pop(name))
        self._texts += other._texts

    def result(self) -> Columns:
        """The columns by name. Raises ImpossibleCapture for impossible times."""
        if findings := self._times.findings():
            raise ImpossibleCapture(self._path, findings)
        columns: dict[str, np.ndarray] = {name: column.values() for name, column in self._columns.items()}
        return columns | {"text": pa.chunked_array(self._texts)} if self._convert_text else columns

    def _of_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
