"""Large SELECTs, a batch of Arrow's columns at a time."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite
import pyarrow as pa

from kernel_tables.reading.small_queries import damaged, decode_lossy

ROWS_PER_BATCH = 16384
BATCHES_AHEAD = 2  # so many are read while one is used

BatchUse = Callable[[pa.RecordBatch], None]


def use_batches(path: Path, user_path: Path, sql: str, use: BatchUse, before_each: Callable[[], None]) -> None:
    """Calls `use` for the rows of one SELECT, a batch at a time and in order, while the next ones are read.

    Without rows, there is one empty batch. `before_each` is called before every batch, and may end the reading by an
    exception. Raises ImpossibleCapture if SQLite refuses the file.
    """
    try:
        with (  # not by adbc's dbapi module, whose import takes longer than reading most captures
            adbc_driver_sqlite.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1") as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
            adbc_driver_manager.AdbcStatement(connection) as statement,
        ):
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(ROWS_PER_BATCH)})
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                _use_while_reading(reader, use, before_each)
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise damaged(user_path, str(error)) from error


def valid_text(text: pa.Array) -> pa.StringArray:
    """The text with replacement marks for invalid UTF-8, which Arrow takes from SQLite unchecked."""
    text = text.cast(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = text.cast(pa.binary()).to_pylist()
        return pa.array([None if value is None else decode_lossy(value) for value in raw], pa.string())
    return text


def _use_while_reading(reader: pa.RecordBatchReader, use: BatchUse, before_each: Callable[[], None]) -> None:
    uses: deque[Future] = deque()  # that may be unfinished
    with ThreadPoolExecutor(1) as pool:
        for batch in reader:
            before_each()
            uses.append(pool.submit(use, batch))
            if len(uses) > BATCHES_AHEAD:
                uses.popleft().result()
        if not uses:
            use(pa.RecordBatch.from_pylist([], reader.schema))
        for future in uses:
            future.result()
