"""The large tables of a capture: their columns as numpy arrays.

schema.py lists the columns that are read, and what replaces a column that a version of nsys lacks.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kernel_tables import global_ids
from kernel_tables.errors import Finding, ImpossibleCapture, TraceError
from kernel_tables.processors import processor_count
from kernel_tables.reading import large_queries, schema, small_tables, soundness, source
from kernel_tables.reading.schema import MISSING
from kernel_tables.reading.table_columns import Columns, TableColumns, TextConverter
from kernel_tables.reading.times import TimeCheck

RANGE_TYPES = (schema.PUSH_POP, schema.START_END)  # of NVTX events
# A large table of a large file is read in parts, by row number, each on a connection of its own.
LARGE_BYTES, LARGE_ROWS, MAX_PARTS = 100_000_000, 500_000, 4
OTHER_THREADS = 2  # these read another table and check the file
MIN_ROW_BYTES = 8  # limits the number of rows, since row numbers may have large gaps
ROW_NUMBER_NAMES = {"rowid", "oid", "_rowid_"}  # a column of such a name hides the number of a row


class _TablePart(NamedTuple):
    """Rows of a table: those that fulfil a condition of SQL, or all."""

    condition: str = ""  # begins with AND
    expected_rows: int = 0


class CallFunctions(NamedTuple):
    """The end of every API call, the string id of its function, and the functions by that id, without versions."""

    end_ns: np.ndarray
    name_id: np.ndarray
    name_by_id: dict[int, str]


class Capture(small_tables.SmallTables, AbstractContextManager):
    """An open capture. Use as a context manager; the file is opened read-only and is left as it was.

    `reading` checks the rows that it returns. Meanwhile the file itself is checked: no figure may be returned before
    `require_sound`.
    """

    def __init__(self, path: str | os.PathLike, *, up_to_damage: bool = False):
        """With `up_to_damage`, invalid JSON is read as far as it is valid."""
        self._stack = ExitStack()
        try:
            file = self._stack.enter_context(source.sqlite_file(path, up_to_damage=up_to_damage))
            super().__init__(Path(path), file, schema.tables_of_nsys(file, user_path=Path(path)))
            checked_by_row = [table for table in self.tables if table not in schema.TABLES_READ_TO_LAST_COLUMN]
            self._proof = soundness.Proof(file, self.path, checked_by_row)
            self._stack.callback(self._proof.close)
        except BaseException:
            self._stack.close()
            raise

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file and removes what was unpacked."""
        self._stack.close()

    def require_sound(self) -> None:
        """Raises ImpossibleCapture unless the file is proven sound; waits for the proof."""
        self._proof.require()

    @contextmanager
    def reading(
        self, *tables: str, convert_text: TextConverter | None = None, with_details: bool = False
    ) -> Iterator[dict[str, Future[Columns]]]:
        """Reads the TABLE_COLUMNS of each table while the block runs: one integer array per name. With `with_details`,
        also device and stream of activities, and the columns for `call_functions`.

        Times are nanoseconds; NULL becomes MISSING; arrays are empty for a table that is not there. Of NVTX_EVENTS only
        ranges are read, and also `text`: their inline names, converted by `convert_text`, a batch at a time while the
        next is read. Two tables are read at a time, in the order given, each on a connection of its own. Raises
        ImpossibleCapture at the end, with every impossibility.
        """
        _ = self.bounds  # read once, before several threads need them
        block_error = None
        with ThreadPoolExecutor(2) as pool:
            reads = {table: pool.submit(self._columns, table, convert_text, with_details) for table in tables}
            try:
                yield reads
            except ImpossibleCapture as error:  # of a read, if the block awaited it: then it is in `findings`, too
                block_error = error
        findings = [finding for read in reads.values() for finding in _impossibilities(read.exception())]
        if findings:
            self.require_sound()  # if the file is damaged, that is the cause
            raise ImpossibleCapture(self.path, findings)
        if block_error:
            raise block_error

    def domains(self) -> dict[tuple[int, int], str]:
        """The names of NVTX domains by (process, domain id); the default domain has no name."""
        # Times are not read: a domain may have been created before the capture began, at a time below zero.
        events = self.read_columns(
            schema.NVTX, schema.DOMAIN_NAME_COLUMNS, types=(schema.DOMAIN_CREATE,), convert_text=_unchanged
        )
        names, processes = self.strings(events["text_id"]), global_ids.process_of(events["thread"])
        numbers = (column.tolist() for column in (processes, events["domain"], events["text_id"]))
        rows = zip(*numbers, events["text"].to_pylist(), strict=True)
        return {(process, domain): text or names.get(text_id, "") for process, domain, text_id, text in rows}

    def range_domains(self) -> np.ndarray:
        """The domain id of each range, in the order of reading(NVTX); read separately, since it is seldom needed."""
        return self.read_columns(schema.NVTX, schema.DOMAIN_COLUMN, types=RANGE_TYPES)["domain"]

    def calls(self, *beginnings: str) -> Columns:
        """The API calls whose names begin with one of `beginnings`: start, end, thread, correlation, returned.

        No rows if the export has no names or no ends of calls (has_nameless_calls).
        """
        if not (self.has(schema.RUNTIME, "nameId", "end") and self.has(schema.STRINGS, "id", "value")):
            return {name: np.empty(0, np.int64) for name in schema.CALL_COLUMNS}
        begins = " OR ".join(f"value GLOB '{beginning}*'" for beginning in beginnings)
        return self.read_columns(
            schema.RUNTIME, schema.CALL_COLUMNS, f"AND nameId IN (SELECT id FROM {schema.STRINGS} WHERE {begins})"
        )

    def graph_node_events(self) -> Columns:
        """The creations of nodes of CUDA graphs: time, thread, node, and the original that it was cloned from.

        No rows if the export lacks a column.
        """
        if not self.has(schema.GRAPH_NODES, *(columns[0] for columns in schema.NODE_CREATION_COLUMNS.values())):
            return {name: np.empty(0, np.int64) for name in schema.NODE_CREATION_COLUMNS}
        return self.read_columns(schema.GRAPH_NODES, schema.NODE_CREATION_COLUMNS)

    def copies(self) -> Columns:
        """The bytes of each memory copy, and the kinds of memory (ENUM_CUDA_MEM_KIND) of its source and target."""
        return self.read_columns(schema.MEMCPY, schema.COPY_COLUMNS)

    def call_functions(self) -> CallFunctions:
        """The functions of the API calls, in the order of reading(RUNTIME). If the export lacks the columns for that,
        every call ends when it starts, and its id is MISSING."""
        if schema.RUNTIME not in self.tables:
            return CallFunctions(np.empty(0, np.int64), np.empty(0, np.int64), {})
        calls = self.read_columns(schema.RUNTIME, self._known_call_columns)
        name_id = calls.get("name_id", np.full(len(calls["start"]), MISSING))
        return CallFunctions(calls.get("end", calls["start"]), name_id, self.function_names(name_id))

    def function_names(self, name_id: np.ndarray) -> dict[int, str]:
        """The functions by string id, without their versions."""
        return {string_id: re.sub(r"_v\d+$", "", name) for string_id, name in self.strings(name_id).items()}

    @property
    def _known_call_columns(self) -> dict:
        columns = schema.CALL_NAME_COLUMNS.items()
        return {name: candidates for name, candidates in columns if self.has(schema.RUNTIME, *candidates)}

    def _columns(self, table: str, convert_text: TextConverter | None, with_details: bool) -> Columns:
        if table == schema.NVTX:
            columns, convert = schema.TABLE_COLUMNS[schema.NVTX], convert_text or _unchanged
            return self.read_columns(schema.NVTX, columns, types=RANGE_TYPES, convert_text=convert)
        details = self._known_call_columns if table == schema.RUNTIME else schema.PLACE_COLUMNS
        return self.read_columns(table, schema.TABLE_COLUMNS[table] | (details if with_details else {}))

    def read_columns(
        self, table: str, columns: dict, condition: str = "", *, types: tuple[int, ...] = (),
        convert_text: TextConverter | None = None,
    ) -> Columns:  # fmt: skip
        """Integer `columns` of a table, given as in schema.py, rows in the order of reading(); empty without the table.

        `condition` restricts the rows. Only for NVTX_EVENTS: with `types`, only events of these types are read; with
        `convert_text`, also `text`. SQLite notices that a row is shorter than its columns only if it reads the last
        column; therefore the SQL has a first condition on that column, which is always true.
        """
        if table not in self.tables:
            text = {"text": pa.chunked_array([], pa.string())} if convert_text else {}
            return {name: np.empty(0, np.int64) for name in columns} | text
        may_be_null = self.tables[table]
        last_column = list(may_be_null)[-1]
        existing = {name: self._existing_column(table, name, candidates) for name, candidates in columns.items()}
        terms = [f'"{column}" AS "{name}"' if column else f'{MISSING} AS "{name}"' for name, column in existing.items()]
        required = {name for name, column in existing.items() if column and not may_be_null[column]}
        if types:
            terms.append(f'"{self._existing_column(table, "type", ("eventType",))}" AS type')
        if convert_text:
            text = "CAST(text AS TEXT)" if "text" in may_be_null else "''"
            terms.append(f"ifnull({text}, '') AS text")
        sql = f'SELECT {", ".join(terms)} FROM {table} WHERE ifnull("{last_column}", 0) IS NOT NULL '

        def read(part: _TablePart) -> TableColumns:
            check = TimeCheck(table, self.bounds, may_be_open=table == schema.NVTX)
            names, expected_rows = list(columns), part.expected_rows
            rows = TableColumns(self.path, table, names, check, required, expected_rows, types, convert_text)
            large_queries.use_batches(
                self._file, self.path, sql + part.condition, rows.add_batch, self._proof.require_so_far
            )
            return rows

        parts = [_TablePart(condition)] if condition else self._parts(table)
        if len(parts) == 1:
            return read(parts[0]).result()
        with ThreadPoolExecutor(len(parts)) as pool:
            first, *others = pool.map(read, parts)
        while others:
            first.extend(others.pop(0))  # pop, so that the memory of each is free afterwards
        return first.result()

    def _parts(self, table: str) -> list[_TablePart]:
        """The parts of a table, in the order of rows: of a large table, one for each processor but OTHER_THREADS, at
        most MAX_PARTS. The first expects all rows, since those of the others are added to it."""
        file_bytes = self._file.stat().st_size
        has_row_numbers = ROW_NUMBER_NAMES.isdisjoint(column.lower() for column in self.tables[table])
        if file_bytes < LARGE_BYTES or not has_row_numbers:
            return [_TablePart()]
        first, last = self._rows(f"SELECT (SELECT min(rowid) FROM {table}), (SELECT max(rowid) FROM {table})")[0]
        if first is None or last - first < LARGE_ROWS:
            return [_TablePart()]
        count = max(min(processor_count() - OTHER_THREADS, MAX_PARTS), 1)
        row_count = min(last - first + 1, file_bytes // MIN_ROW_BYTES)
        last_rows = [first + (last - first) * part // count for part in range(1, count)]  # of all parts but the last
        lower = ["", *(f"AND rowid > {row} " for row in last_rows)]
        upper = [*(f"AND rowid <= {row}" for row in last_rows), ""]
        expected = [row_count, *[row_count // count + 1] * (count - 1)]
        return [_TablePart(above + below, rows) for above, below, rows in zip(lower, upper, expected, strict=True)]

    def _existing_column(self, table: str, name: str, candidates: tuple[str, ...]) -> str | None:
        """The first of the candidates that the table has. If it has none: None if the column `name` may be lacking, and
        else TraceError is raised."""
        present = [column for column in candidates if column in self.tables[table]]
        if present:
            return present[0]
        if name in schema.OPTIONAL_COLUMNS:
            return None
        version = self.metadata.get("EXPORT_SCHEMA_VERSION", "unknown")
        raise TraceError(
            f"{self.path}: table {table} has no column {candidates[0]} (schema {version}), which is needed to know what"
            " launched what; export the report with an nsys of 2022.4 or later"
        )


def _unchanged(text: pa.Array) -> pa.Array:
    return text


def _impossibilities(error: BaseException | None) -> tuple[Finding, ...]:
    """The findings in the error of one read; any other error is raised."""
    if error and not isinstance(error, ImpossibleCapture):
        raise error
    return error.findings if error else ()
