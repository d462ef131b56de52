"""The columns of a capture as numpy arrays: the only home of SQL.

What is read, and what stands in for a column that a version of nsys lacks, is named in schema.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import numpy as np
import pyarrow as pa

from kernel_tables.errors import TraceError
from kernel_tables.reading.global_ids import process_of
from kernel_tables.reading.schema import (
    CALLS,
    DIAGNOSTICS,
    DOMAIN,
    DOMAIN_CREATE,
    METADATA,
    MISSING,
    NVTX,
    OPTIONAL,
    PLACE,
    PUSH_POP,
    RUNTIME,
    START_END,
    STRINGS,
    WANTED,
    tables_of_nsys,
)
from kernel_tables.reading.source import sqlite_file

ROWS_PER_BATCH = 65536

Columns = dict  # of name to numpy array; `text` is a pyarrow array
TextMap = Callable[[pa.StringArray], pa.Array]


class Capture:
    """An open capture. Use as a context manager; the file is opened read-only and is left as it was."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self._stack = ExitStack()
        self._file = self._stack.enter_context(sqlite_file(path))
        try:
            self.tables = tables_of_nsys(self._file, named=self.path)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """None; what was unpacked is removed."""
        self._stack.close()

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The export's own metadata by name: EXPORT_PRODUCT_VERSION, EXPORT_SCHEMA_VERSION, CAPTURE_BACKEND, ..."""
        for table in METADATA:
            if table in self.tables:
                rows = self.query(f"SELECT name, ifnull(value, '') AS value FROM {table}")
                return dict(zip(rows["name"].to_pylist(), rows["value"].to_pylist(), strict=True))
        return {}

    def columns(self, *tables: str, of_text: TextMap | None = None) -> list[Columns]:
        """The wanted columns of each table, one integer array per name; empty arrays for a table that is not there.

        Times are nanoseconds; MISSING stands for NULL. NVTX_EVENTS yields its ranges only, and `text` besides: their
        inline names, or what OF_TEXT makes of them, a batch at a time while the next is read. Two tables are read at a
        time, each on a connection of its own.
        """
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda table: self._columns(table, of_text), tables))

    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """The strings of the distinct ids that are used; an id without a string is left out."""
        used = np.unique(ids[ids != MISSING]).tolist()
        if STRINGS not in self.tables or not used:
            return {}
        found: dict[int, str] = {}
        for first in range(0, len(used), 5000):
            wanted = ",".join(map(str, used[first : first + 5000]))
            rows = self.query(f"SELECT id, value FROM {STRINGS} WHERE id IN ({wanted})")
            found.update(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
        return found

    def domains(self) -> dict[tuple[int, int], str]:
        """The names of NVTX domains by (process, domain id); the default domain has no name."""
        if NVTX not in self.tables:
            return {}
        events = self._events((DOMAIN_CREATE,), WANTED[NVTX] | DOMAIN, with_text=True)
        names = self.strings(events["text_id"])
        inline = events["text"].to_pylist()
        process = process_of(events["thread"])
        rows = zip(process.tolist(), events["domain"].tolist(), inline, events["text_id"].tolist(), strict=True)
        return {(p, domain): text or names.get(text_id, "") for p, domain, text, text_id in rows}

    def range_domains(self) -> np.ndarray:
        """The domain id of each range, in the order of columns(NVTX); read apart, since few tables ask for it."""
        return self._events((PUSH_POP, START_END), DOMAIN)["domain"]

    def calls(self, pattern: str) -> Columns:
        """The API calls whose name begins with the regular expression: start, end, thread, correlation, returned."""
        if "nameId" not in self.tables.get(RUNTIME, ()):
            return {name: np.empty(0, np.int64) for name in CALLS}
        ids = self.query(f"SELECT DISTINCT nameId AS id FROM {RUNTIME}")["id"].to_numpy()
        named = [str(i) for i, name in self.strings(ids).items() if re.match(pattern, name)]
        return self._selected(RUNTIME, CALLS, f"WHERE nameId IN ({','.join(named)})")

    def places(self, *tables: str) -> list[Columns]:
        """The device and stream of each row of the tables, in the order of columns()."""
        return [self._selected(table, PLACE) for table in tables]

    def call_ends_and_names(self) -> tuple[np.ndarray, list[str]]:
        """The end and the name of every API call, in the order of columns(RUNTIME); the name without its version."""
        if RUNTIME not in self.tables or not self.tables[RUNTIME] >= {"end", "nameId"}:
            return np.empty(0, np.int64), []
        rows = self.query(f'SELECT ifnull("end", start) AS "end", nameId AS id FROM {RUNTIME}')
        ids = rows["id"].to_numpy()
        names = {number: re.sub(r"_v\d+$", "", name) for number, name in self.strings(ids).items()}
        return self._int64(rows["end"], RUNTIME, "end"), [names.get(number, "launch") for number in ids.tolist()]

    def diagnostics(self) -> list[tuple[int, str]]:
        """(severity, text) of what nsys has to say about its own capture; 2 is a warning, 3 an error."""
        if not self.tables.get(DIAGNOSTICS, set()) >= {"severity", "text"}:
            return []
        rows = self.query(f"SELECT ifnull(severity, 0) AS severity, ifnull(text, '') AS text FROM {DIAGNOSTICS}")
        return list(zip(rows["severity"].to_pylist(), rows["text"].to_pylist(), strict=True))

    def labels(self, table: str) -> dict[int, str]:
        """The `label` column of one of nsys's ENUM tables by id; empty where the table is not there."""
        if table not in self.tables:
            return {}
        rows = self.query(f"SELECT id, ifnull(label, name) AS label FROM {table}")
        return dict(zip(rows["id"].to_pylist(), rows["label"].to_pylist(), strict=True))

    def last_time_ns(self) -> int:
        """The end of the capture: the latest end of any event that is read here."""
        latest = [
            self.query(f'SELECT ifnull(max(ifnull("end", start)), 0) AS t FROM {table}')["t"][0].as_py()
            for table in WANTED
            if table in self.tables and self.tables[table] >= {"start", "end"}
        ]
        return max(latest, default=0)

    def query(self, sql: str, of_text: TextMap | None = None) -> pa.Table:
        """The rows of one SELECT, its column `text` as OF_TEXT makes it. Raises TraceError for a damaged file."""
        uri = f"file:{quote(str(self._file.resolve()))}?mode=ro&immutable=1"
        try:
            with (  # not adbc's dbapi module, whose import takes longer than most captures
                adbc_driver_sqlite.connect(uri) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(ROWS_PER_BATCH)})
                statement.set_sql_query(sql)
                stream, _ = statement.execute_query()
                with pa.RecordBatchReader.from_stream(stream) as reader:
                    return _mapped(reader, of_text) if of_text else reader.read_all()
        except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise TraceError(
                f"{self.path}: SQLite cannot read it ({reason}); the file is damaged: export it again"
            ) from error

    def _columns(self, table: str, of_text: TextMap | None) -> Columns:
        if table == NVTX:
            return self._events((PUSH_POP, START_END), WANTED[NVTX], with_text=True, of_text=of_text)
        return self._selected(table, WANTED[table])

    def _events(self, types: tuple[int, ...], wanted: dict, with_text: bool = False, **text_map) -> Columns:
        """The wanted columns of the NVTX events of these types, and `text` where asked for."""
        if NVTX not in self.tables:
            return self._selected(NVTX, wanted) | ({"text": pa.chunked_array([], pa.string())} if with_text else {})
        text = "ifnull(text, '')" if "text" in self.tables[NVTX] else "''"
        event_type = self._term(NVTX, "type", ("eventType",))
        where = f"WHERE {event_type} IN ({', '.join(map(str, types))})"
        return self._selected(NVTX, wanted, where, f"{text} AS text" if with_text else "", **text_map)

    def _selected(self, table: str, wanted: dict, where: str = "", text: str = "", of_text=None) -> Columns:
        """The WANTED integer columns of a table, and the term TEXT besides."""
        if table not in self.tables:
            return {name: np.empty(0, np.int64) for name in wanted}
        terms = [f'{self._term(table, name, holders)} AS "{name}"' for name, holders in wanted.items()]
        rows = self.query(f"SELECT {', '.join([*terms, text] if text else terms)} FROM {table} {where}", of_text)
        columns: Columns = {name: self._int64(rows[name], table, name) for name in wanted}
        return columns | {"text": rows["text"]} if text else columns

    def _int64(self, column: pa.ChunkedArray, table: str, name: str) -> np.ndarray:
        if not pa.types.is_integer(column.type):
            raise TraceError(
                f"{self.path}: {name} of {table} holds {column.type}, not integers; the file is not nsys's, or damaged:"
                " export the report again"
            )
        known = column.fill_null(MISSING) if column.null_count else column
        return known.to_numpy().astype(np.int64, copy=False)

    def _term(self, table: str, name: str, holders: tuple[str, ...]) -> str:
        """The SQL expression that yields the column NAME: a column that is there, or the sign for a missing one."""
        present = [column for column in holders if column in self.tables[table]]
        if present:
            return f'"{present[0]}"'
        if name in OPTIONAL:
            return str(MISSING)
        version = self.metadata.get("EXPORT_SCHEMA_VERSION", "unknown")
        raise TraceError(
            f"{self.path}: table {table} has no column {holders[0]} (schema {version}), which is needed to know what"
            " launched what; export the report with an nsys of 2022.4 or later"
        )


def _mapped(reader: pa.RecordBatchReader, of_text: TextMap) -> pa.Table:
    """The rows with their column `text` mapped, each batch on another thread while the next one is read."""

    def mapped(batch: pa.RecordBatch) -> pa.RecordBatch:
        text = of_text(batch["text"].cast(pa.string()))
        return batch.set_column(batch.schema.get_field_index("text"), "text", text)

    with ThreadPoolExecutor(1) as pool:
        batches = list(pool.map(mapped, reader))
    return pa.Table.from_batches(batches or [mapped(pa.RecordBatch.from_pylist([], reader.schema))])
