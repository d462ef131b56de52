"""A copy of a capture that may be shown to anybody.

nsys writes the environment, the command line and every process of the host into each export; some of it stands in
StringIds, as values with NUL bytes inside that the sqlite3 shell does not show. So the copy is made from a list of what
may stay, and of the strings only those that a kept row refers to.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

KEPT_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_DRIVER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUDA_GRAPH_NODE_EVENTS",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "NVTX_EVENTS",
    "DIAGNOSTIC_EVENT",
    "ANALYSIS_DETAILS",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_GPU",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_CUDA_CONTEXT_INFO",
    "TARGET_INFO_CUDA_STREAM",
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
)
STRING_COLUMNS = ("shortName", "demangledName", "mangledName", "nameId", "textId", "nameid")
IDENTIFYING_COLUMNS = {"TARGET_INFO_GPU": ("uuid", "busLocation")}
KEPT_EXPORT_KEYS = ("EXPORT_SCHEMA_VERSION%", "EXPORT_PRODUCT_%", "CAPTURE_BACKEND")
PATH = re.compile(r"(?<![\w.])/(?:[^\s'\"<>|]+)")


def write_publishable(source: Path, target: Path) -> None:
    """Writes `target`: the tables of the capture `source` that tell of its ranges, launches and GPU, and no more.

    The source is opened read-only. `target` must not exist; it is complete when this returns.
    """
    with sqlite3.connect(target, uri=True) as database:
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("ATTACH ? AS source", (f"{source.resolve().as_uri()}?mode=ro",))
        statements = dict(database.execute("SELECT name, sql FROM source.sqlite_master WHERE type = 'table'"))
        for table, statement in statements.items():
            if table in KEPT_TABLES or table.startswith("ENUM_"):
                database.execute(statement)
                database.execute(f'INSERT INTO main."{table}" SELECT * FROM source."{table}"')
        _copy_used_strings(database, statements)
        _remove_identifying_values(database)
    database.close()


def _copy_used_strings(database: sqlite3.Connection, statements: dict[str, str]) -> None:
    if "StringIds" not in statements:
        return
    database.execute(statements["StringIds"])
    used = [
        f'SELECT "{column}" FROM main."{table}"'
        for table in _tables(database)
        for column in _columns(database, table)
        if column in STRING_COLUMNS
    ]
    if used:
        database.execute(
            f"INSERT INTO main.StringIds SELECT * FROM source.StringIds WHERE id IN ({' UNION '.join(used)})"
        )


def _remove_identifying_values(database: sqlite3.Connection) -> None:
    for table in set(_tables(database)) & set(IDENTIFYING_COLUMNS):
        for column in set(_columns(database, table)) & set(IDENTIFYING_COLUMNS[table]):
            database.execute(f'UPDATE main."{table}" SET "{column}" = NULL')
    for table in set(_tables(database)) & {"META_DATA_EXPORT", "EXPORT_META_DATA"}:
        others = " AND ".join("name NOT LIKE ?" for _ in KEPT_EXPORT_KEYS)
        database.execute(f'DELETE FROM main."{table}" WHERE {others}', KEPT_EXPORT_KEYS)
    if "DIAGNOSTIC_EVENT" in _tables(database):
        database.create_function("without_paths", 1, lambda text: PATH.sub("<path>", text), deterministic=True)
        database.execute("UPDATE main.DIAGNOSTIC_EVENT SET text = without_paths(text)")


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA main.table_info("{table}")')]
