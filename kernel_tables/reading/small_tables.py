"""The small tables of a capture: names, messages, labels, its own bounds."""

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernel_tables.errors import impossible
from kernel_tables.kineto.capture_schema import COLLECTIVES
from kernel_tables.reading import nccl_calls, python_samples, schema
from kernel_tables.reading.nccl_calls import LAYOUT_COLUMNS, LAYOUTS_TABLE, MAX_BYTES, NcclCall, calls_in
from kernel_tables.reading.payloads import events_condition
from kernel_tables.reading.python_samples import PythonSample, samples_in
from kernel_tables.reading.small_queries import as_text, read_only_connection
from kernel_tables.reading.times import Bounds

NSYS_WARNING, NSYS_ERROR = 2, 3  # severities
MAX_METADATA = 10_000  # an export has some ten; the pages of a damaged table may lead in circles


class NsysMessage(NamedTuple):
    """A message of nsys about a capture, and the number of processes that it is about."""

    severity: int  # NSYS_WARNING, NSYS_ERROR or another number
    text: str
    process_count: int


class TorchCollective(NamedTuple):
    """What PyTorch requested of a kernel of NCCL; None if it is not known."""

    operation: str | None = None
    bytes: int | None = None
    communicator: int | None = None


class SmallTables:
    """The small tables of a capture. A value may have any type, since SQLite does not enforce those of columns."""

    def __init__(self, path: Path, file: Path, tables: dict[str, dict[str, bool]]):
        """`path` is the user's, `file` the SQLite file to read, `tables` what schema.tables_of_nsys returns."""
        self.path, self._file, self.tables = path, file, tables

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The export's own metadata by name: EXPORT_PRODUCT_VERSION, EXPORT_SCHEMA_VERSION, CAPTURE_BACKEND, ..."""
        for table in schema.METADATA:
            if self.has(table, "name", "value"):
                rows = self._rows(f"SELECT name, value FROM {table} LIMIT {MAX_METADATA}")
                return {as_text(name) or "": as_text(value) or "" for name, value in rows}
        return {}

    @cached_property
    def bounds(self) -> Bounds:
        """The end and the length that the capture states; Bounds() if it states none. Raises ImpossibleCapture if they
        are impossible."""
        if not self.has(schema.BOUNDS, "startTime", "stopTime", "duration"):
            return Bounds()
        rows = self._rows(f"SELECT startTime, stopTime, duration FROM {schema.BOUNDS}")
        if not all(_are_possible_bounds(*row) for row in rows):
            raise impossible(
                self.path,
                "impossible_bounds",
                f"the capture's own start, end and duration, {rows[0]}, cannot be: export the report again",
            )
        if not rows:
            return Bounds()
        return Bounds(last_ns=max(stop for _, stop, _ in rows), length_ns=max(duration for _, _, duration in rows))

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has these columns."""
        return table in self.tables and self.tables[table].keys() >= set(columns)

    def strings(self, ids: np.ndarray | list[int]) -> dict[int, str]:
        """The string of each distinct id; ids that are MISSING, or have no string, are left out."""
        used = [string_id for string_id in np.unique(ids).tolist() if string_id != schema.MISSING]
        if not self.has(schema.STRINGS, "id", "value") or not used:
            return {}
        with read_only_connection(self._file, self.path) as connection:
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
            connection.executemany("INSERT INTO used VALUES (?)", ((string_id,) for string_id in used))
            strings = connection.execute(
                f"SELECT id, value FROM main.{schema.STRINGS} WHERE id IN (SELECT id FROM used) AND value IS NOT NULL"
            )
            return {string_id: as_text(value) for string_id, value in strings}

    def diagnostics(self) -> list[NsysMessage]:
        """The distinct messages of nsys about the capture."""
        if not self.has(schema.DIAGNOSTICS, "severity", "text"):
            return []
        process_column = "globalPid" if self.has(schema.DIAGNOSTICS, "globalPid") else "NULL"
        processes: dict[tuple[int, str], set] = {}
        for severity, text, process in self._rows(f"SELECT severity, text, {process_column} FROM {schema.DIAGNOSTICS}"):
            known_severity = severity if isinstance(severity, int) else NSYS_WARNING
            processes.setdefault((known_severity, as_text(text) or ""), set()).add(process)
        return [NsysMessage(severity, text, len(about)) for (severity, text), about in processes.items()]

    def labels(self, table: str) -> dict[int, str]:
        """The labels (or else names) in one of nsys's ENUM tables by id; empty without the table."""
        if not self.has(table, "id", "label", "name"):
            return {}
        rows = self._rows(f"SELECT id, ifnull(label, name) FROM {table}")
        return {number: as_text(label) for number, label in rows if label is not None}

    def python_samples(self) -> list[PythonSample]:
        """The Python stacks that nsys sampled; without frames if the export lacks the payloads."""
        if not self.has(schema.NVTX, "start", "eventType", "text", "globalTid", "domainId"):
            return []
        is_sample = events_condition(schema.NVTX, schema.MARK, python_samples.DOMAIN)
        rows = self._rows(f"SELECT start, globalTid, {self._blob_sql} FROM {schema.NVTX} WHERE {is_sample}")
        if any(not (isinstance(start, int) and isinstance(thread, int)) for start, thread, _ in rows):
            raise impossible(self.path, "wrong_type", "a sample's time or thread is not an integer; export it again")
        return samples_in(rows, self.strings)

    @property
    def _blob_sql(self) -> str:
        return "CAST(binaryData AS BLOB)" if self.has(schema.NVTX, "binaryData") else "NULL"

    @cached_property
    def nccl_calls(self) -> list[NcclCall]:
        """The calls of NCCL by thread, then time; without bytes if the export lacks the payloads. A call that was not
        over when the capture ended is left out, since its end is unknown."""
        if not self.has(schema.NVTX, "start", "end", "eventType", "text", "textId", "globalTid", "domainId"):
            return []
        name = "text"
        if schema.STRINGS in self.tables:
            name = f"ifnull(text, (SELECT value FROM {schema.STRINGS} WHERE id = textId))"
        is_call = events_condition(schema.NVTX, schema.PUSH_POP, nccl_calls.DOMAIN)
        rows = self._rows(
            f'SELECT start, "end", globalTid, {name}, {self._blob_sql} FROM {schema.NVTX}'
            f' WHERE "end" IS NOT NULL AND {is_call}'
        )
        if any(not isinstance(number, int) for row in rows for number in row[:3]):
            raise impossible(self.path, "wrong_type", "a call's time or thread is not an integer; export it again")
        columns = ", ".join(LAYOUT_COLUMNS)
        has_layouts = self.has(LAYOUTS_TABLE, *LAYOUT_COLUMNS)  # the offsets at which payloads have their fields
        return calls_in(rows, self._rows(f"SELECT {columns} FROM {LAYOUTS_TABLE}") if has_layouts else [])

    @cached_property
    def torch_collectives(self) -> dict[tuple[int, int], TorchCollective]:
        """What PyTorch requested of kernels of NCCL, by global process id and correlation id; only in captures of
        PyTorch's profiler."""
        if not self.has(COLLECTIVES, "globalPid", "correlationId", "operation", "bytes", "communicator"):
            return {}
        rows = self._rows(f"SELECT globalPid, correlationId, operation, bytes, communicator FROM {COLLECTIVES}")
        if any(not isinstance(number, int | None) for row in rows for number in (*row[:2], *row[3:])):
            raise impossible(self.path, "wrong_type", f"{COLLECTIVES} holds other than integers; record it again")
        return {
            (process, correlation): TorchCollective(
                as_text(operation), size if size is not None and 0 <= size <= MAX_BYTES else None, communicator
            )
            for process, correlation, operation, size, communicator in rows
        }

    def gpus(self) -> list[str]:
        """The names of the GPUs in the capture, sorted."""
        if not self.has(schema.GPUS, "name"):
            return []
        return sorted(as_text(name) or "unnamed" for (name,) in self._rows(f"SELECT name FROM {schema.GPUS}"))

    def began_utc_ns(self) -> int | None:
        """The time, in nanoseconds since 1970, at which the capture's clock was zero; None if it is not stated."""
        if not self.has(schema.SESSION, "utcEpochNs"):
            return None
        rows = self._rows(f"SELECT utcEpochNs FROM {schema.SESSION}")
        return min((epoch_ns for (epoch_ns,) in rows if isinstance(epoch_ns, int)), default=None)

    def last_time_ns(self) -> int:
        """The end of the capture: the latest end, or start of an open range, in the tables of TABLE_COLUMNS. Raises
        ImpossibleCapture if it is after the end that the capture states."""
        tables = [table for table in schema.TABLE_COLUMNS if self.has(table, "start", "end")]
        latest = [self._rows(f'SELECT max(ifnull("end", start)) FROM {table}')[0][0] for table in tables]
        last_ns = max((time_ns for time_ns in latest if isinstance(time_ns, int)), default=0)
        if last_ns > self.bounds.last_ns:  # of an API call: reading checks all other ends (times.TimeCheck)
            raise impossible(
                self.path, "outside_capture", f"an API call ends {last_ns} ns after its begin; export it again"
            )
        return last_ns

    def has_nameless_calls(self) -> bool:
        """Whether the function of some API call is unknown: of all calls, if the export lacks their ends, since none is
        read then."""
        if schema.RUNTIME not in self.tables:
            return False
        if not (self.has(schema.RUNTIME, "nameId", "end") and self.has(schema.STRINGS, "id", "value")):
            return True
        known = f"SELECT id FROM {schema.STRINGS} WHERE value IS NOT NULL"
        return bool(self._rows(f"SELECT DISTINCT nameId FROM {schema.RUNTIME} EXCEPT {known} LIMIT 1"))

    def _rows(self, sql: str, parameters: tuple = ()) -> list[tuple]:
        with read_only_connection(self._file, self.path) as connection:
            return connection.execute(sql, parameters).fetchall()


def _are_possible_bounds(start_ns: object, stop_ns: object, duration_ns: object) -> bool:
    are_integers = all(isinstance(value_ns, int) for value_ns in (start_ns, stop_ns, duration_ns))
    return are_integers and start_ns <= stop_ns and 0 <= duration_ns <= stop_ns
