"""Writing SQLite files with nsys's tables: a copy of an export that may be published, and the capture of a trace.

nsys writes the environment, the command line and every process of the host, with its environment, into each export;
some of it is in StringIds, as values with NUL bytes inside that the sqlite3 shell does not show. So of an export only
the listed tables and text columns are copied, of other columns only numbers, so that a later nsys may add columns, and
of strings only those that a copied row refers to. What is left out is never written: a value that is deleted
afterwards may remain in the file's free space.
"""

import re
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import numpy as np

from kernel_tables import export, payloads
from kernel_tables.capture import KINDS, NONE, Capture, Numbers
from kernel_tables.errors import RANK_KEY, RANKS_KEY, WINDOW_KEY
from kernel_tables.export import GRAPH_NODES, METADATA, NVTX, PUSHED, RUNTIME, SAMPLED, STRINGS, in_domain
from kernel_tables.files import full_disk_as_os_error, written_whole

ENUM, LAYOUTS = "ENUM_", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
KEPT_TABLES = (
    *export.TABLES, RUNTIME, GRAPH_NODES, NVTX, LAYOUTS, *METADATA, *export.OVERHEADS, export.HOST_NODE,
    "CUPTI_ACTIVITY_KIND_DRIVER", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUDA_GPU_MEMORY_USAGE_EVENTS", "OSRT_API",
    "DIAGNOSTIC_EVENT", "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_STREAM",
)  # fmt: skip
KEPT_TEXTS = {  # by table, or ENUM for the tables that name the values of a column: the columns whose texts stay
    NVTX: ("text", "jsonText"),
    STRINGS: ("value",),
    ENUM: ("name", "label"),
    "TARGET_INFO_SESSION_START_TIME": ("utcTime", "localTime"),
    "TARGET_INFO_GPU": ("name", "chipName"),
    LAYOUTS: ("name",),
    **dict.fromkeys(METADATA, ("name", "value")),
}
# By table, the SQL condition for rows that stay. Of nsys's messages (DIAGNOSTIC_EVENT), these are warnings, errors, and
# the counts of what it collected; its other messages name processes and files.
KEPT_ROWS = {
    **dict.fromkeys(
        METADATA,
        "name LIKE 'EXPORT_SCHEMA_VERSION%' OR name LIKE 'EXPORT_PRODUCT_%'"
        f" OR name IN ('CAPTURE_BACKEND', '{RANK_KEY}', '{RANKS_KEY}', '{WINDOW_KEY}')",
    ),
    LAYOUTS: f"name IN {payloads.NCCL_FIELDS}",
    "DIAGNOSTIC_EVENT": "severity >= 2"
    " OR text LIKE 'Number of % events %' OR text LIKE '%dropped%' OR text LIKE '%lost%' OR text LIKE '%not all%'",
}


def write_publishable(source: Path, target: Path, window: str | None = None, process: int | None = None) -> None:
    """Writes what may be published of the export `source` to `target`, completely or not at all. With `window`, the
    name of a range, that is only what began within or after the longest range of that name, if there is one. With
    `process`, its number in the operating system, that is only what belongs to that process or to none.

    The source is opened read-only. Raises TraceError if it is no export, ImpossibleCapture if it is damaged (a copy
    would be sound, and lack what was lost), OSError if the disk is full."""
    try:
        with (
            closing(export.Export(source)) as opened,
            written_whole(target) as partial,
            full_disk_as_os_error(target),
            closing(sqlite3.connect(partial, uri=True)) as database,
            database,
        ):
            opened.open()
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.execute("ATTACH ? AS source", (f"{opened.file.resolve().as_uri()}?mode=ro",))
            (verdict,) = database.execute("PRAGMA source.quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            _Publication(opened, database, window, process).copy()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # messages of SQLite may quote invalid text
        raise export.damaged(source, str(error)) from error


class _Publication:
    """A database, to which an export is copied that is attached to it as `source`."""

    def __init__(self, opened: export.Export, database: sqlite3.Connection, window: str | None, process: int | None):
        self.export, self.database, self.process = opened, database, process
        self.since_ns = self._window_start_ns(window) if window else None
        self.layouts = opened.layouts()
        database.create_function("published_message", 1, _message)
        database.create_function("published_stack", 1, lambda blob: None if payloads.frames_of(blob) is None else blob)
        database.create_function("published_call", 1, self._call)

    def copy(self) -> None:
        tables = [table for table in self.export.columns if table in KEPT_TABLES or table.startswith(ENUM)]
        for table in tables:
            self._copy_rows(table, self._condition(table))
        if self.export.has(STRINGS, "id", "value"):
            ids = {"shortName", "demangledName", "mangledName", "nameId", "textId", "jsonTextId"}  # of strings
            used = [(column, table) for table in tables for column in ids & self.export.columns[table].keys()]
            union = " UNION ".join(f'SELECT "{column}" FROM main."{table}"' for column, table in used)
            self._copy_rows(STRINGS, f"id IN ({union})" if used else "FALSE")
            self._copy_names_of_stacks()

    def _copy_rows(self, table: str, where: str) -> None:
        (statement,) = self.database.execute("SELECT sql FROM source.sqlite_master WHERE name = ?", (table,)).fetchone()
        self.database.execute(statement)
        values = ", ".join(self._published(table, column) for column in self.export.columns[table])
        self.database.execute(f'INSERT INTO main."{table}" SELECT {values} FROM source."{table}" WHERE {where}')

    def _window_start_ns(self, window: str) -> int | None:
        """The start of the longest range of this name, which parts of a model may have, too; None if there is none."""
        if not self.export.has(NVTX, "start", "end", "text"):
            return None
        timed = "typeof(start) = 'integer' AND typeof(end) = 'integer'"
        named = f"FROM {NVTX} WHERE {self.export.nvtx_text} = ? AND {timed}"
        (longest,) = self.export.rows(f"SELECT max(end - start), start {named}", window)
        return longest[1]

    def _condition(self, table: str) -> str:
        """The SQL condition for rows that are published: they did not begin before the window, and belong to the
        process. Rows without a start or a process fulfil it, and so do NVTX events that name objects, that is, all but
        marks and ranges (70 and 71: of imported text)."""
        columns, conditions = self.export.columns[table], [KEPT_ROWS.get(table, "TRUE")]
        if self.since_ns is not None and "start" in columns:
            of_objects = "eventType NOT IN (34, 59, 60, 70, 71)" if table == NVTX else "FALSE"
            conditions.append(f"{of_objects} OR start >= {self.since_ns:d} OR start IS NULL")
        owner = next((one for one in ("globalTid", "globalPid", "processId", "pid") if one in columns), None)
        if self.process is not None and owner:
            number = f"iif({owner} < 1 << 24, {owner}, {owner} >> 24 & 16777215)"  # in a global id, its bits 24 to 47
            conditions.append(f"ifnull({owner}, 0) = 0 OR {number} = {self.process:d}")
        return " AND ".join(f"({condition})" for condition in conditions)

    def _published(self, table: str, column: str) -> str:
        """The SQL expression for the published values of a column. Texts and blobs in a column that is not listed
        become an empty text, all values of a column that identifies a GPU NULL."""
        if column in ("uuid", "busLocation", "luid", "ctxswDevPath", "ctrlDevPath"):
            return "NULL"
        if (table, column) == (NVTX, "binaryData"):
            return (
                f"CASE WHEN eventType = {SAMPLED} AND {in_domain(payloads.PYTHON_DOMAIN, 'source')}"
                " THEN published_stack(CAST(binaryData AS BLOB))"
                f" WHEN eventType = {PUSHED} AND {in_domain(payloads.NCCL_DOMAIN, 'source')}"
                " THEN published_call(CAST(binaryData AS BLOB)) END"
            )
        if (table, column) == ("DIAGNOSTIC_EVENT", "text"):
            return "published_message(CAST(text AS BLOB))"
        if column in KEPT_TEXTS.get(ENUM if table.startswith(ENUM) else table, ()):
            return f'"{column}"'
        return f"""CASE WHEN typeof("{column}") IN ('text', 'blob') THEN '' ELSE "{column}" END"""

    def _call(self, blob: bytes | None) -> bytes | None:
        """The payload of a call of NCCL with zeros outside of NCCL_FIELDS, since padding may hold leftover memory of
        the program; None if it has none of these."""
        domain, layout, data = payloads.payload_of(blob) or (0, 0, b"")
        cleaned, fields = bytearray(len(data)), payloads.payload_fields(blob, self.layouts)
        for name, value in fields.items():
            struct.pack_into("<Q", cleaned, self.layouts[domain, layout][name], value)
        return blob[:32] + cleaned if fields else None

    def _copy_names_of_stacks(self) -> None:
        """Copies the names of functions and modules (for the paths of files) that sampled Python stacks refer to."""
        names: dict[int, str | None] = {}
        if self.export.has(NVTX, "binaryData"):
            stacks = f"SELECT DISTINCT binaryData FROM main.{NVTX} WHERE eventType = {SAMPLED}"
            frames = (frame for (blob,) in self.database.execute(stacks) for frame in payloads.frames_of(blob) or ())
            for function, file, _ in frames:
                names[function] = payloads.function_name(self.export.strings.get(function, ""))
                names[file] = payloads.module_name(self.export.strings.get(file, ""))
        absent = f"?1 NOT IN (SELECT id FROM main.{STRINGS})"
        rows = sorted((key, name) for key, name in names.items() if name)
        self.database.executemany(f"INSERT INTO main.{STRINGS} (id, value) SELECT ?1, ?2 WHERE {absent}", rows)


def _message(value: bytes | None) -> str | None:
    """A message of nsys without paths (absolute, or of at least three parts; URLs stay), quoted names, and values of
    variables; cut to a length that can be searched quickly."""
    if value is None:
        return None
    text = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "<name>", value.decode("utf-8", "replace")[:1000])
    text = re.sub(r"\b([A-Za-z_]\w*)=\S+", r"\1=<value>", text)
    path = r"(?<![\w.])~?/[^\s'\"<>|]+|\b[\w.-]+(?:/[\w.+-]+){2,}|\b[A-Za-z]:\\[^\s'\"<>|]+"
    return " ".join(word if "://" in word else re.sub(path, "<path>", word) for word in text.split(" "))


def write_capture(capture: Capture, path: Path) -> None:
    """Writes the capture of a trace (`trace.read` and the like) as SQLite with nsys's tables and columns, completely or
    not at all; export.read reads it back to the same tables. Raises OSError if the disk is full."""
    with written_whole(path) as partial, full_disk_as_os_error(path), closing(sqlite3.connect(partial)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        with database:
            for table, columns in _tables_of(capture).items():
                texts = ("name", "value", "text", "operation")
                declared = (f'"{name}" {"TEXT" if name in texts else "INTEGER"}' for name in columns)
                database.execute(f"CREATE TABLE {table} ({', '.join(declared)})")
                rows = zip(*(_cells(name, values) for name, values in columns.items()), strict=True)
                database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)


def _tables_of(capture: Capture) -> dict[str, dict]:
    """By table, its columns in order, as arrays or lists."""
    calls, ranges, nodes, source = capture.calls, capture.ranges, capture.nodes, capture.source
    capture.load_call_ends()
    strings = Numbers()  # the id of each
    activities = _activity_tables(capture, strings)
    call_ids = {key: strings[name] for key, name in calls.names.items()}
    collectives, began_ns, gpus = source.torch_collectives(), source.began_utc_ns(), source.gpus()
    last_ns = max(int(end.max(initial=0)) for end in (capture.activities.end, calls.end, ranges.end))
    facts = {"EXPORT_SCHEMA_VERSION": "3.20.0", **capture.facts}
    return {
        "META_DATA_EXPORT": {"name": list(facts), "value": list(facts.values())},
        # A reader refuses times after the end that a capture states.
        "ANALYSIS_DETAILS": {"globalVid": [0], "duration": [last_ns], "startTime": [0], "stopTime": [last_ns]},
        "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": [] if began_ns is None else [began_ns]},
        "TARGET_INFO_GPU": {"vmId": [0] * len(gpus), "id": list(range(len(gpus))), "name": gpus},
        **activities,
        RUNTIME: {
            "start": calls.start, "end": calls.end, "globalTid": calls.threads[calls.thread],
            "correlationId": calls.correlation, "nameId": [call_ids.get(key, NONE) for key in calls.name.tolist()],
            "returnValue": np.zeros(len(calls.start), np.int64),
        },
        NVTX: {
            "start": ranges.start, "end": ranges.end, "eventType": np.full(len(ranges), PUSHED),
            "globalTid": ranges.thread, "text": [ranges.names[name] for name in ranges.name.tolist()],
            "domainId": np.zeros(len(ranges), np.int64),
        },
        GRAPH_NODES: {
            "start": nodes.time, "globalTid": nodes.thread, "graphNodeId": nodes.node,
            "originalGraphNodeId": nodes.original,
        },
        "PROFILER_OVERHEAD": {"start": capture.overhead[0], "end": capture.overhead[1]},
        "TORCH_COLLECTIVES": {  # of this project's own: what PyTorch asked of kernels of NCCL
            "globalPid": [process for process, _ in collectives],
            "correlationId": [correlation for _, correlation in collectives],
            **{name: [one[place] for one in collectives.values()]
               for place, name in enumerate(("operation", "bytes", "communicator"))},
        },
        STRINGS: {"id": list(strings.values()), "value": list(strings)},
    }  # fmt: skip


def _activity_tables(capture: Capture, strings: Numbers) -> dict[str, dict]:
    """The tables of activities; adds the names of kernels to the strings."""
    work, sizes, copies = capture.activities, capture.source.sizes(), capture.source.copies()
    kind_of_copy = {f"[CUDA memcpy {text}]": kind for kind, text in enumerate(export.COPY_KINDS)}
    columns = {
        "start": work.start, "end": work.end, "deviceId": work.stream >> 32, "streamId": work.stream & 0xFFFFFFFF,
        "correlationId": work.correlation, "globalPid": work.process, "graphNodeId": work.node,
        "demangledName": strings.of(work.names)[work.name], "bytes": copies["bytes"],
        "copyKind": np.array([kind_of_copy.get(name, 0) for name in work.names], int)[work.name],
        "srcKind": copies["source"], "dstKind": copies["target"],
    }  # fmt: skip
    for size in ("grid", "block"):
        extents = np.array([text.split("x") if text else [NONE] * 3 for text in sizes[size]]).reshape(-1, 3)
        columns |= {f"{size}{axis}": extents[:, place].astype(int) for place, axis in enumerate("XYZ")}
    common, copied = list(columns)[:7], ["bytes", "copyKind", "srcKind", "dstKind"]
    names = {
        export.KERNEL: [*common, "demangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"],
        export.MEMCPY: [*common, *copied], export.MEMSET: [*common, "bytes"],
    }  # fmt: skip
    rows = [work.kind == kind for kind in range(len(KINDS))]
    return {table: {name: columns[name][rows[kind]] for name in names[table]} for kind, table in enumerate(names)}


def _cells(name: str, values) -> list:
    """The values of a column for SQLite: NONE becomes NULL, except in times, and in devices, of which -1 is the CPU."""
    cells = values.tolist() if isinstance(values, np.ndarray) else values
    return cells if name in ("start", "end", "deviceId") else [None if cell == NONE else cell for cell in cells]
