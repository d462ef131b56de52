"""A copy of a capture that may be published.

nsys writes the environment, the command line and every process of the host, with its environment, into each export;
some of it is in StringIds, as values with NUL bytes inside that the sqlite3 shell does not show. So only the listed
tables and text columns are copied, of other columns only numbers, so that a later nsys may add columns, and of strings
only those that a copied row refers to. What is left out is never written: a value that is deleted afterwards may remain
in the file's free space.
"""

import re
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from kernel_tables import global_ids
from kernel_tables.files import full_disk_as_os_error
from kernel_tables.reading import nccl_calls, payloads, python_samples, schema, small_queries, soundness
from kernel_tables.reading.schema import METADATA, NVTX, STRINGS

ENUM = "ENUM_"  # the prefix of tables that name the values of a column
KEPT_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUDA_GRAPH_NODE_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS", NVTX,
    nccl_calls.LAYOUTS_TABLE, "OSRT_API", "DIAGNOSTIC_EVENT", "ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_STREAM", *METADATA,
)  # fmt: skip
KEPT_TEXTS = {  # by table, or ENUM for all tables with that prefix: the columns whose texts stay
    NVTX: ("text", "jsonText"),
    STRINGS: ("value",),
    ENUM: ("name", "label"),
    "TARGET_INFO_SESSION_START_TIME": ("utcTime", "localTime"),
    "TARGET_INFO_GPU": ("name", "chipName"),
    nccl_calls.LAYOUTS_TABLE: ("name",),
    **dict.fromkeys(METADATA, ("name", "value")),
}
STRING_COLUMNS = ("shortName", "demangledName", "mangledName", "nameId", "textId", "jsonTextId")  # ids of strings
IDENTIFYING_COLUMNS = ("uuid", "busLocation", "luid", "ctxswDevPath", "ctrlDevPath")
KEPT_EXPORT_KEYS = (
    "EXPORT_SCHEMA_VERSION%", "EXPORT_PRODUCT_%", "CAPTURE_BACKEND",
    schema.RANK_KEY, schema.RANKS_KEY, schema.WINDOW_KEY,
)  # fmt: skip
# By table, the SQL condition for rows that stay. Of nsys's messages (DIAGNOSTIC_EVENT), these are warnings, errors, and
# the counts of what it collected; its other messages name processes and files.
KEPT_ROWS = {
    **dict.fromkeys(METADATA, " OR ".join(f"name LIKE '{key}'" for key in KEPT_EXPORT_KEYS)),
    nccl_calls.LAYOUTS_TABLE: f"name IN {nccl_calls.FIELDS}",
    "DIAGNOSTIC_EVENT": "severity >= 2 OR "
    + " OR ".join(f"text LIKE '{like}'" for like in ("Number of % events %", "%dropped%", "%lost%", "%not all%")),
}
# Marks and ranges; 70 and 71 are ranges of imported text. Other events name objects.
TIMED_NVTX_TYPES = (schema.MARK, schema.PUSH_POP, schema.START_END, 70, 71)
COMPOSED_TEXTS = {"DIAGNOSTIC_EVENT": ("text",)}  # sentences of nsys, which may contain names
PATH = re.compile(r"(?<![\w.])~?/[^\s'\"<>|]+|\b[\w.-]+(?:/[\w.+-]+){2,}|\b[A-Za-z]:\\[^\s'\"<>|]+")
MAX_MESSAGE = 1000  # characters
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)=\S+")


def write_publishable(source: Path, target: Path, window: str | None = None, process: int | None = None) -> None:
    """Writes what may be published of the capture `source` to `target`. With `window`, the name of a range, that is
    only what began within or after the longest range of that name, if there is one. With `process`, its number in the
    operating system, that is only what belongs to that process or to none.

    The source is opened read-only. `target` must not exist; it is complete when this returns. Raises TraceError if the
    source is damaged (a copy would be sound, and lack what was lost), OSError if the disk is full.
    """
    soundness.require_sound(source, user_path=source)
    try:
        with full_disk_as_os_error(target), closing(sqlite3.connect(target, uri=True)) as database, database:
            database.execute("PRAGMA journal_mode=OFF")
            database.execute("PRAGMA synchronous=OFF")
            database.execute("PRAGMA ignore_check_constraints=ON")  # of the source's tables, which are created here
            database.create_function("published_text", 1, _published_text, deterministic=True)
            database.create_function("published_stack", 1, _published_stack, deterministic=True)
            database.execute("ATTACH ? AS source", (f"{source.resolve().as_uri()}?mode=ro",))
            published_call = partial(nccl_calls.publishable_payload, layouts=_layouts(database))
            database.create_function("published_call", 1, published_call, deterministic=True)
            _copy_kept_tables(database, window, process)
    except sqlite3.Error as error:
        raise small_queries.damaged(source, str(error)) from error
    except UnicodeDecodeError as error:  # messages of SQLite may quote invalid text
        raise small_queries.damaged(source, "its schema is not text") from error


def without_paths(text: str) -> str:
    """The text with `<path>` for file paths that are absolute or have at least three parts; URLs stay."""
    return " ".join(word if "://" in word else PATH.sub("<path>", word) for word in text.split(" "))


def without_names(text: str) -> str:
    """The text without paths, quoted names and values of variables."""
    return without_paths(ASSIGNED.sub(r"\1=<value>", QUOTED.sub("<name>", text)))


def _published_text(value: bytes | None) -> str | None:
    """A message of nsys, whatever its type, without names; it is cut to a length that can be searched quickly."""
    return None if value is None else without_names(small_queries.decode_lossy(value)[:MAX_MESSAGE])


def _published_stack(blob: bytes | None) -> bytes | None:
    """The payload of a sampled Python stack, which consists of numbers; None for any other payload."""
    return None if python_samples.frames_of(blob) is None else blob


def _layouts(database: sqlite3.Connection) -> nccl_calls.Layouts:
    """The offsets of the publishable fields in the payloads of NCCL's calls."""
    if not set(nccl_calls.LAYOUT_COLUMNS).issubset(_columns(database, nccl_calls.LAYOUTS_TABLE, "source")):
        return {}
    wanted = ", ".join(nccl_calls.LAYOUT_COLUMNS)
    sql = f"SELECT {wanted} FROM source.{nccl_calls.LAYOUTS_TABLE} WHERE name IN {nccl_calls.FIELDS}"
    return nccl_calls.layouts_in(database.execute(sql))


def _copy_kept_tables(database: sqlite3.Connection, window: str | None, process: int | None) -> None:
    query = "SELECT name, sql FROM source.sqlite_master WHERE type = 'table' AND rootpage > 0"  # 0: a virtual table
    statements = dict(database.execute(query))  # CREATE TABLE, by table
    since_ns = _window_start_ns(database, window, statements) if window else None
    tables = [table for table in statements if table in KEPT_TABLES or table.startswith(ENUM)]
    for table in tables:
        _create(database, table, statements[table])
        columns = _columns(database, table)
        condition = KEPT_ROWS.get(table) or _since_condition(table, columns, since_ns)
        _copy_rows(database, table, f"({condition}) AND ({_process_condition(columns, process)})")
    if STRINGS in statements:
        _create(database, STRINGS, statements[STRINGS])
        _copy_used_strings(database, tables)
        if "binaryData" in _columns(database, NVTX):
            _copy_names_of_stacks(database)


def _create(database: sqlite3.Connection, table: str, statement: str) -> None:
    """Creates the table as in the source. nsys writes no table with computed columns, so such a table is an error."""
    database.execute(statement)
    columns = database.execute(f'PRAGMA main.table_xinfo("{table}")')
    if any(is_hidden for *_, is_hidden in columns):
        raise sqlite3.DatabaseError(f"columns of {table} are computed")


def _copy_rows(database: sqlite3.Connection, table: str, where: str) -> None:
    values = ", ".join(_published_sql(table, column) for column in _columns(database, table))
    database.execute(f'INSERT INTO main."{table}" SELECT {values} FROM source."{table}" WHERE {where}')


def _window_start_ns(database: sqlite3.Connection, window: str, tables: Collection[str]) -> int | None:
    """The start of the longest range with the name of the window, on the clock of the source; None if there is none.
    The longest, since parts of a model may have the same name."""
    columns = _columns(database, NVTX, "source")
    registered = f"(SELECT value FROM source.{STRINGS} WHERE id = textId)"
    names = [sql for column, sql in (("text", "text"), ("textId", registered)) if column in columns]
    if not names or STRINGS not in tables or "end" not in columns:
        return None
    starts = database.execute(
        f"SELECT start FROM source.{NVTX} WHERE ? IN ({', '.join(names)}) AND typeof(start) = 'integer'"
        " AND typeof(end) = 'integer' ORDER BY end - start DESC LIMIT 1",
        (window,),
    )
    return next((start for (start,) in starts), None)


def _since_condition(table: str, columns: Sequence[str], since_ns: int | None) -> str:
    """The SQL condition that a row did not begin before `since_ns`; rows without a start fulfil it, and so do NVTX
    events that name objects."""
    if since_ns is None or "start" not in columns:
        return "TRUE"
    began = f"start >= {since_ns:d} OR start IS NULL"
    return began if table != NVTX else f"eventType NOT IN {TIMED_NVTX_TYPES} OR {began}"


def _process_condition(columns: Sequence[str], process: int | None) -> str:
    """The SQL condition that a row belongs to this process, or to none."""
    to_number = f">> {global_ids.NUMBER_BITS} & {global_ids.NUMBER_MASK}"  # as global_ids.process_number
    sql_of_number = {column: f"{column} {to_number}" for column in ("globalTid", "globalPid")}
    sql_of_number |= {column: column for column in ("processId", "pid")}
    process_column = next((column for column in sql_of_number if column in columns), None)
    if process is None or process_column is None:
        return "TRUE"
    return f"ifnull({process_column}, 0) = 0 OR {sql_of_number[process_column]} = {process:d}"


def _published_sql(table: str, column: str) -> str:
    """The SQL expression for the published values of a column. Texts and blobs in a column that is not listed become an
    empty text, all values of an identifying column NULL."""
    if column in IDENTIFYING_COLUMNS:
        return "NULL"
    if (table, column) == (NVTX, "binaryData"):
        source_table = f'source."{NVTX}"'
        is_sample = payloads.events_condition(source_table, schema.MARK, python_samples.DOMAIN)
        is_call = payloads.events_condition(source_table, schema.PUSH_POP, nccl_calls.DOMAIN)
        return (
            f"CASE WHEN {is_sample} THEN published_stack(CAST(binaryData AS BLOB))"
            f" WHEN {is_call} THEN published_call(CAST(binaryData AS BLOB)) END"
        )
    if column in COMPOSED_TEXTS.get(table, ()):
        return f'published_text(CAST("{column}" AS BLOB))'
    if column in KEPT_TEXTS.get(ENUM if table.startswith(ENUM) else table, ()):
        return f'"{column}"'
    return f"""CASE WHEN typeof("{column}") IN ('text', 'blob') THEN '' ELSE "{column}" END"""


def _copy_used_strings(database: sqlite3.Connection, tables: list[str]) -> None:
    columns = [(table, column) for table in tables for column in _columns(database, table)]
    used = [f'SELECT "{column}" FROM main."{table}"' for table, column in columns if column in STRING_COLUMNS]
    if used:
        _copy_rows(database, STRINGS, f"id IN ({' UNION '.join(used)})")


def _copy_names_of_stacks(database: sqlite3.Connection) -> None:
    """Copies the names of functions and modules (for the paths of files) that sampled Python stacks refer to."""
    blobs = database.execute(f"SELECT binaryData FROM main.{NVTX} WHERE binaryData IS NOT NULL")
    frames = python_samples.distinct_frames(blob for (blob,) in blobs)
    file_ids = {frame.file_id for frame in frames}
    copied_ids = {string_id for (string_id,) in database.execute(f"SELECT id FROM main.{STRINGS}")}
    string_of_id = f"SELECT CAST(value AS BLOB) FROM source.{STRINGS} WHERE id = ?"
    for string_id in sorted(python_samples.string_ids(frames) - copied_ids):
        (string,) = database.execute(string_of_id, (string_id,)).fetchone() or (None,)
        text = small_queries.decode_lossy(string or b"")
        publishable_name = python_samples.module_name if string_id in file_ids else python_samples.function_name
        if name := publishable_name(text):
            database.execute(f"INSERT INTO main.{STRINGS} (id, value) VALUES (?, ?)", (string_id, name))


def _columns(database: sqlite3.Connection, table: str, database_name: str = "main") -> list[str]:
    columns = database.execute(f'PRAGMA {database_name}.table_info("{table}")')
    return [name for _number, name, *_ in columns]
