"""Large SELECTs, straight into Arrow's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.reading.small_queries import damaged, shown

ROWS_PER_BATCH = 65536

BatchMap = Callable[[pa.RecordBatch], pa.RecordBatch]


def selected(path: Path, named: Path, sql: str, maps: list[BatchMap], before_each: Callable[[], None]) -> pa.Table:
    """The rows of one SELECT, or what MAPS make of each batch in turn, on another thread while the next one is read.

    BEFORE_EACH batch is called, and may end the reading by an exception. Raises ImpossibleCapture, which calls the file
    NAMED, where SQLite refuses it.
    """
    try:
        with (  # not adbc's dbapi module, whose import takes longer than most captures
            adbc_driver_sqlite.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1") as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
            adbc_driver_manager.AdbcStatement(connection) as statement,
        ):
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(ROWS_PER_BATCH)})
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                return _table(reader, maps, before_each)
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise damaged(named, str(error)) from error


def readable(text: pa.Array) -> pa.StringArray:
    """The text, with replacement marks for what is no UTF-8, which Arrow takes as it comes from SQLite."""
    text = text.cast(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = text.cast(pa.binary()).to_pylist()
        return pa.array([None if value is None else shown(value) for value in raw], pa.string())
    return text


def _table(reader: pa.RecordBatchReader, maps: list[BatchMap], before_each: Callable[[], None]) -> pa.Table:
    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            before_each()
            yield _in_memory_of_its_own(batch)

    if not maps:
        return pa.Table.from_batches(batches(), reader.schema)

    def mapped(batch: pa.RecordBatch) -> pa.RecordBatch:
        return reduce(lambda rows, of_batch: of_batch(rows), maps, batch)

    with ThreadPoolExecutor(1) as pool:
        done = list(pool.map(mapped, batches()))
    return pa.Table.from_batches(done or [mapped(pa.RecordBatch.from_pylist([], reader.schema))])


def _in_memory_of_its_own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, its integers copied: what the driver gives takes its memory until no column of it is used any more."""
    columns = [pc.add(column, 0) if pa.types.is_integer(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
