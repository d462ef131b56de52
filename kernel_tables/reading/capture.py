"""The columns of a capture as numpy arrays: the only home of SQL.

schema.py lists the columns that are read, and what replaces a column that a version of nsys lacks.
"""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from kernel_tables.errors import Finding, ImpossibleCapture, TraceError
from kernel_tables.processors import processors
from kernel_tables.reading import global_ids, large_queries, schema, small_tables, soundness, source
from kernel_tables.reading.table_columns import Columns, TableColumns, TextMap
from kernel_tables.reading.times import Times

RANGES = (schema.PUSH_POP, schema.START_END)
# A table is read in parts, by row number, if it is worth more connections to the file.
LARGE_BYTES, LARGE_ROWS, MOST_PARTS = 100_000_000, 500_000, 4
OTHER_THREADS = 2  # that read another table and check the file
FEWEST_BYTES = 8  # of a row; numbers of rows may have large gaps
ROW_NUMBERS = {"rowid", "oid", "_rowid_"}  # columns of these names hide the number of a row


class Capture(small_tables.SmallTables, AbstractContextManager):
    """An open capture. Use as a context manager; the file is opened read-only and is left as it was.

    The rows from `reading` are possible. Meanwhile the file itself is checked: no figure may be returned
    before `require_sound`.
    """

    def __init__(self, path: str | os.PathLike, *, up_to_damage: bool = False):
        """With `up_to_damage`, invalid JSON is read as far as it is valid."""
        self._stack = ExitStack()
        try:
            file = self._stack.enter_context(source.sqlite_file(path, up_to_damage=up_to_damage))
            super().__init__(Path(path), file, schema.tables_of_nsys(file, named=Path(path)))
            self._proof = soundness.Proof(
                file, self.path, [table for table in self.tables if table not in schema.READ_BY_COLUMN]
            )
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
        self, *tables: str, of_text: TextMap | None = None, with_details: bool = False
    ) -> Iterator[dict[str, Future[Columns]]]:
        """The wanted columns of each table, one integer array per name, while they are read; all are there at the end.
        `with_details`, also those of `places` and `call_functions`.

        Times are nanoseconds; NULL becomes MISSING; arrays are empty for a table that is not there. NVTX_EVENTS
        yields its ranges only, and also `text`: their inline names, or what `of_text` makes of them, a batch at a time
        while the next is read. Two tables are read at a time, in the order given, each on a separate connection.
        Raises ImpossibleCapture at the end, with every impossibility.
        """
        _ = self.bounds  # read once, before several threads ask for it
        of_block = None
        with ThreadPoolExecutor(2) as pool:
            reads = {table: pool.submit(self._columns, table, of_text, with_details) for table in tables}
            try:
                yield reads
            except ImpossibleCapture as error:
                of_block = error
        wrong = [finding for read in reads.values() for finding in _findings(read.exception())]
        if wrong:
            self.require_sound()  # a damaged file may well seem impossible, too
            raise ImpossibleCapture(self.path, wrong)
        if of_block:
            raise of_block

    def domains(self) -> dict[tuple[int, int], str]:
        """The names of NVTX domains by (process, domain id); the default domain has no name."""
        # not their times: a domain may have been created before the capture began, at a time below zero
        events = self._events((schema.DOMAIN_CREATE,), schema.DOMAIN_NAME, of_text=_unchanged)
        names = self.strings(events["text_id"])
        inline = events["text"].to_pylist()
        process = global_ids.process_of(events["thread"])
        rows = zip(process.tolist(), events["domain"].tolist(), inline, events["text_id"].tolist(), strict=True)
        return {(p, domain): text or names.get(text_id, "") for p, domain, text, text_id in rows}

    def range_domains(self) -> np.ndarray:
        """The domain id of each range, in the order of reading(NVTX); read separately, since few tables need it."""
        return self._events(RANGES, schema.DOMAIN)["domain"]

    def calls(self, *beginnings: str) -> Columns:
        """The API calls whose names begin with one of `beginnings`: start, end, thread, correlation, returned.

        No rows if the export has no names or no ends of calls (has_nameless_calls).
        """
        if not (self.has(schema.RUNTIME, "nameId", "end") and self.has(schema.STRINGS, "id", "value")):
            return {name: np.empty(0, np.int64) for name in schema.CALLS}
        named = " OR ".join(f"value GLOB '{beginning}*'" for beginning in beginnings)
        return self.selected(
            schema.RUNTIME, schema.CALLS, f"AND nameId IN (SELECT id FROM {schema.STRINGS} WHERE {named})"
        )

    def graph_node_events(self) -> Columns:
        """The creations of nodes of CUDA graphs: time, thread, node, and the original that it was cloned from.

        No rows if the export lacks a column.
        """
        if not self.has(schema.GRAPH_NODES, *(columns[0] for columns in schema.GRAPH_NODE_EVENTS.values())):
            return {name: np.empty(0, np.int64) for name in schema.GRAPH_NODE_EVENTS}
        return self.selected(schema.GRAPH_NODES, schema.GRAPH_NODE_EVENTS)

    def copies(self) -> Columns:
        """The bytes of each memory copy, and the kinds of memory (ENUM_CUDA_MEM_KIND) of its source and target."""
        return self.selected(schema.MEMCPY, schema.COPY_DETAILS)

    def call_functions(self) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """The end and the string id of every API call, in the order of reading(RUNTIME), and the functions by that id,
        without their versions.

        Without these columns, calls have no duration and MISSING ids.
        """
        if schema.RUNTIME not in self.tables:
            return np.empty(0, np.int64), np.empty(0, np.int64), {}
        calls = self.selected(schema.RUNTIME, self._known_call_columns)
        name_id = calls.get("name_id", np.full(len(calls["start"]), schema.MISSING))
        return calls.get("end", calls["start"]), name_id, self.function_names(name_id)

    def function_names(self, name_id: np.ndarray) -> dict[int, str]:
        """The functions by string id, without their versions."""
        return {number: re.sub(r"_v\d+$", "", name) for number, name in self.strings(name_id).items()}

    @property
    def _known_call_columns(self) -> dict:
        return {name: columns for name, columns in schema.CALL_NAMES.items() if self.has(schema.RUNTIME, *columns)}

    def call_ends_and_names(self) -> tuple[np.ndarray, list[str]]:
        """The end and the name of every API call, in the order of reading(RUNTIME); "launch" without a name."""
        ends, ids, names = self.call_functions()
        return ends, [names.get(number, "launch") for number in ids.tolist()]

    def _columns(self, table: str, of_text: TextMap | None, with_details: bool) -> Columns:
        if table == schema.NVTX:
            return self._events(RANGES, schema.WANTED[schema.NVTX], of_text or _unchanged)
        details = self._known_call_columns if table == schema.RUNTIME else schema.PLACE
        return self.selected(table, schema.WANTED[table] | (details if with_details else {}))

    def _events(self, types: tuple[int, ...], wanted: dict, of_text: TextMap | None = None) -> Columns:
        """The wanted columns of the NVTX events of these types; with `of_text`, also `text`."""
        if schema.NVTX not in self.tables:
            return self.selected(schema.NVTX, wanted) | ({"text": pa.chunked_array([], pa.string())} if of_text else {})
        more = [f'"{self._holder(schema.NVTX, "type", ("eventType",))}" AS type']
        if of_text:
            text = "CAST(text AS TEXT)" if "text" in self.tables[schema.NVTX] else "''"
            more.append(f"ifnull({text}, '') AS text")
        return self.selected(schema.NVTX, wanted, more=more, types=types, of_text=of_text)

    def selected(self, table: str, wanted: dict, only: str = "", more: Sequence[str] = (), **options) -> Columns:
        """The `wanted` integer columns of a table, as schema.py lists them, in the order of reading(); empty without
        the table. `only` is a further condition; `more` are terms that the `options` of TableColumns need.

        SQLite refuses a row that is not as long as its columns when it comes to the last of them: hence the condition,
        which is always true.
        """
        if table not in self.tables:
            return {name: np.empty(0, np.int64) for name in wanted}
        *_, last = may_be_null = self.tables[table]
        held = {name: self._holder(table, name, holders) for name, holders in wanted.items()}
        terms = [
            f'"{column}" AS "{name}"' if column else f'{schema.MISSING} AS "{name}"' for name, column in held.items()
        ]
        required = {name for name, column in held.items() if column and not may_be_null[column]}
        sql = f'SELECT {", ".join([*terms, *more])} FROM {table} WHERE ifnull("{last}", 0) IS NOT NULL '

        def read(part: tuple[str, int]) -> TableColumns:
            condition, rows = part
            times = Times(table, self.bounds, may_be_open=table == schema.NVTX)
            columns = TableColumns(self.path, table, list(wanted), times, required, rows, **options)
            large_queries.use_batches(self._file, self.path, sql + condition, columns.use, self._proof.require_so_far)
            return columns

        parts = [(only, 0)] if only else self._parts(table)
        if len(parts) == 1:
            return read(parts[0]).finished()
        with ThreadPoolExecutor(len(parts)) as pool:
            first, *others = pool.map(read, parts)
        while others:
            first.append(others.pop(0))
        return first.finished()

    def _parts(self, table: str) -> list[tuple[str, int]]:
        """Conditions that divide the rows of a large table, in their order, between processors, each with the rows for
        which its columns need room: the first for those of all, which it takes up. No rows if that is not known."""
        size = self._file.stat().st_size
        has_numbers = ROW_NUMBERS.isdisjoint(column.lower() for column in self.tables[table])
        if size < LARGE_BYTES or not has_numbers:
            return [("", 0)]
        first, last = self._rows(f"SELECT (SELECT min(rowid) FROM {table}), (SELECT max(rowid) FROM {table})")[0]
        if first is None or last - first < LARGE_ROWS:
            return [("", 0)]
        count = max(min(processors() - OTHER_THREADS, MOST_PARTS), 1)
        rows = min(last - first + 1, size // FEWEST_BYTES)
        bounds = [first + (last - first) * part // count for part in range(1, count)]
        lower = ["", *(f"AND rowid > {bound} " for bound in bounds)]
        upper = [*(f"AND rowid <= {bound}" for bound in bounds), ""]
        room = [rows, *[rows // count + 1] * (count - 1)]
        return [(above + below, of_part) for above, below, of_part in zip(lower, upper, room, strict=True)]

    def _holder(self, table: str, name: str, holders: tuple[str, ...]) -> str | None:
        """The existing column that holds the column `name`, None if there is none and it may be lacking."""
        present = [column for column in holders if column in self.tables[table]]
        if present:
            return present[0]
        if name in schema.OPTIONAL:
            return None
        version = self.metadata.get("EXPORT_SCHEMA_VERSION", "unknown")
        raise TraceError(
            f"{self.path}: table {table} has no column {holders[0]} (schema {version}), which is needed to know what"
            " launched what; export the report with an nsys of 2022.4 or later"
        )


def _unchanged(text: pa.Array) -> pa.Array:
    return text


def _findings(error: BaseException | None) -> tuple[Finding, ...]:
    """The impossibilities in the error of one read; any other error is raised."""
    if error is None or isinstance(error, ImpossibleCapture):
        return error.findings if error else ()
    raise error
