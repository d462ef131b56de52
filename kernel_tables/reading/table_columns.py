"""The columns of one table, built while its rows are read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.errors import ImpossibleCapture, impossible
from kernel_tables.reading.large_queries import readable
from kernel_tables.reading.schema import MISSING
from kernel_tables.reading.times import Times

FIRST_LENGTH = 65536
NARROW = ("correlation", "label", "text_id", "name_id", "device", "stream")  # seldom beyond 32 bits; nothing sums them
LARGEST_NARROW = (1 << 31) - 1


class GrowingColumn:
    """Integers in order of arrival, MISSING for NULL."""

    def __init__(self, narrow: bool = False) -> None:
        """With `narrow`, of 32 bits as long as all are MISSING or counts that fit."""
        self._values = np.empty(FIRST_LENGTH, np.int32 if narrow else np.int64)
        self._length = 0

    def append(self, values: pa.Array) -> None:
        """Appends integers or NULLs."""
        known = values.fill_null(MISSING) if values.null_count else values
        self._append(known.to_numpy(), room=2)

    def take(self, other: "GrowingColumn") -> None:
        """Appends the integers of another column."""
        self._append(other.values(), room=1)

    def _append(self, values: np.ndarray, room: int) -> None:
        end = self._length + len(values)
        if self._values.dtype == np.int32 and not ((values >= MISSING) & (values <= LARGEST_NARROW)).all():
            self._values = self._values.astype(np.int64)
        if end > len(self._values):
            self._values.resize(room * end, refcheck=False)  # remapped, not copied, where the system can
        self._values[self._length : end] = values
        self._length = end

    def values(self) -> np.ndarray:
        """All integers. Nothing can be appended afterwards."""
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
        types: tuple[int, ...] = (),
        of_text: TextMap | None = None,
    ):
        """The columns `names` of `table`, in the file that messages call `path`; `times` checks all rows.

        `types` are the values of the column `type` whose rows are kept; `of_text` converts the column `text`.
        """
        self._path, self._table = path, table
        self._columns = {name: GrowingColumn(narrow=name in NARROW) for name in names}
        self._times, self._types, self._of_text = times, types, of_text
        self._texts: list[pa.Array] = []

    def use(self, batch: pa.RecordBatch) -> None:
        """Adds the next rows. Raises ImpossibleCapture if a column does not hold integers."""
        if self._types:
            batch = self._of_types(batch)
        for name in self._columns:
            self._require_integers(batch, name)
        self._times.look_at(batch)
        for name, column in self._columns.items():
            column.append(batch[name])
        if self._of_text:
            self._texts.append(self._of_text(readable(batch["text"])))

    def append(self, other: "TableColumns") -> None:
        """Adds the rows that another one has read, which is empty afterwards."""
        self._times.add(other._times)
        for name, column in self._columns.items():
            column.take(other._columns.pop(name))
        self._texts += other._texts

    def finished(self) -> Columns:
        """The columns by name. Raises ImpossibleCapture for impossible times."""
        wrong = self._times.findings()
        if wrong:
            raise ImpossibleCapture(self._path, wrong)
        columns: dict[str, np.ndarray] = {name: column.values() for name, column in self._columns.items()}
        return columns | {"text": pa.chunked_array(self._texts)} if self._of_text else columns

    def _of_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the types. Not selected by SQL, which may search a damaged file forever without finding a row."""
        self._require_integers(batch, "type")
        wanted = pc.is_in(batch["type"], value_set=pa.array(self._types, batch["type"].type))
        return batch if pc.all(wanted).as_py() else batch.filter(wanted)

    def _require_integers(self, batch: pa.RecordBatch, name: str) -> None:
        if not pa.types.is_integer(batch[name].type):
            raise impossible(
                self._path,
                "wrong_type",
                f"{name} of {self._table} holds {batch[name].type}, not integers; the file is not nsys's, or damaged:"
                " export the report again",
            )
