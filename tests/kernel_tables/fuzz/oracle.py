"""What SQLite and a few SELECTs say against a capture: the reference, without code of kernel_tables."""

from __future__ import annotations

import gzip
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

ACTIVITIES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
LABELS = ("demangledName", "shortName", "mangledName", "nameId")
READ = {  # the columns that every command reads, of the tables that some commands do not read whole
    **{f"CUPTI_ACTIVITY_KIND_{kind}": ("start", "end", "correlationId", "globalPid") for kind in ACTIVITIES},
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "globalTid", "correlationId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "textId"),
    **dict.fromkeys(("CUDA_GRAPH_NODE_EVENTS", "OSRT_API", "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS"), ()),
}
OF_PAGES = "*** in database main ***"
OF_A_VALUE = re.compile(r"(?:NULL|NUMERIC|TEXT) value in \w+\.(\w+)")
NO_TIME_IS_LATER = 2**62
PATIENCE_OPERATIONS = 20_000_000  # of SQLite's machine; a view that never ends is no table


def objection(path: Path) -> str | None:
    """Why no figure may be made from the file; None where nothing is known against it."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            path = path.with_suffix(".unpacked")
            path.write_bytes(gzip.decompress(content))
        except (OSError, EOFError, gzip.zlib.error) as error:
            return f"gzip: {error}"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            database.set_progress_handler(lambda: 1, PATIENCE_OPERATIONS)
            return _damage(database) or _impossible(database)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's own words may quote what is no text
        return f"SQLite: {error}"


def _damage(database: sqlite3.Connection) -> str | None:
    """What SQLite objects to: any page, and rows that commands give figures of."""
    with suppress(sqlite3.DatabaseError):  # of a row, which is found again below
        said = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if said.startswith(OF_PAGES):
            return f"quick_check: {said}"
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0").fetchall():
        read = READ.get(table)
        for (said,) in database.execute(f'PRAGMA quick_check("{table}")') if read != () else ():
            value = OF_A_VALUE.fullmatch(said)
            if said != "ok" and not (value and read and value[1] not in read):
                return f"quick_check: {said}"
    return None


def _impossible(database: sqlite3.Connection) -> str | None:
    names = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = {
        name: {column for (column,) in database.execute("SELECT name FROM pragma_table_info(?)", (name,))}
        for (name,) in database.execute(names)
    }
    last, longest = _bounds(database, tables)
    wrong = {f"CUPTI_ACTIVITY_KIND_{kind}": _wrong_times(last, longest) for kind in ACTIVITIES}
    is_range = "eventType IN (59, 60)"
    wrong["NVTX_EVENTS"] = (
        f'{is_range} AND ("end" IS NOT NULL OR {_no_time("start", last)}) AND ({_wrong_times(last, longest)})'
    )
    wrong["CUPTI_ACTIVITY_KIND_RUNTIME"] = _no_time("start", last)
    for table, condition in wrong.items():
        needed = {"start", "end", "eventType"} if table == "NVTX_EVENTS" else {"start", "end"}
        if needed <= tables.get(table, set()):
            count = database.execute(f'SELECT count(*) FROM "{table}" WHERE {condition}').fetchone()[0]
            if count:
                return f"times: {count} rows of {table}"
    return _nameless(database, tables)


def _wrong_times(last: int, longest: int) -> str:
    length = f'"end" < start OR "end" - start > {longest}'
    return f"{_no_time('start', last)} OR {_no_time('end', last)} OR {length}"


def _no_time(column: str, last: int) -> str:
    return f'typeof("{column}") <> \'integer\' OR "{column}" < 0 OR "{column}" > {last}'


def _bounds(database: sqlite3.Connection, tables: dict) -> tuple[int, int]:
    if not {"stopTime", "duration"} <= tables.get("ANALYSIS_DETAILS", set()):
        return NO_TIME_IS_LATER, NO_TIME_IS_LATER
    bounds = database.execute("SELECT max(stopTime), max(duration) FROM ANALYSIS_DETAILS").fetchone()
    return tuple(min(NO_TIME_IS_LATER, bound) if isinstance(bound, int) else NO_TIME_IS_LATER for bound in bounds)


def _nameless(database: sqlite3.Connection, tables: dict) -> str | None:
    kernels = tables.get("CUPTI_ACTIVITY_KIND_KERNEL", set())
    label = next((column for column in LABELS if column in kernels), None)
    if label is None:
        return None
    named = (
        "SELECT id FROM StringIds WHERE value IS NOT NULL"
        if {"id", "value"} <= tables.get("StringIds", set())
        else "SELECT NULL WHERE 0"
    )
    count = database.execute(
        f'SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE "{label}" IS NULL OR "{label}" NOT IN ({named})'
    ).fetchone()[0]
    return f"names: {count} kernels without one" if count else None
