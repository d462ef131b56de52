"""A capture of any size with nsys's tables and a real export's width of rows, for measuring how fast it is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROCESS = 1 << 48 | 444 << 24
MAIN_THREAD, AUTOGRAD_THREAD = PROCESS | 444, PROCESS | 481
PUSH_POP, START_END = 59, 60
NS_PER_LAUNCH = 5000
KERNEL_NAMES = 60
NAMES_OF_INNER_RANGES = 20  # on each of the two innermost levels; the others have one name each, as a model has
LAUNCH_NAME_ID = 1000
KERNEL_COLUMNS = (
    "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
    "demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread", "gridX", "gridY",
    "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread",
    "localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId", "sharedMemoryLimitConfig",
)  # fmt: skip
RUNTIME_COLUMNS = (
    "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId"
)  # fmt: skip
NVTX_COLUMNS = (
    "start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid", "endGlobalTid", "textId",
    "domainId", "uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue", "jsonTextId",
    "jsonText", "binaryData",
)  # fmt: skip

KERNEL_TERMS = (
    f"n * {NS_PER_LAUNCH} + 4000", f"n * {NS_PER_LAUNCH} + 7000 + n % 97", 0, 1, 0, 7, "n + 100", PROCESS,
    *[f"n % {KERNEL_NAMES}"] * 3, 1, 0, 128, 512, 16, 1, 256, 1, 1, 16_384, 65_536, 0, 50_000_000, "n + 1", 102_400,
    "NULL", 0,
)  # fmt: skip
RUNTIME_TERMS = (
    f"n * {NS_PER_LAUNCH} + 2000", f"n * {NS_PER_LAUNCH} + 3500", 0,
    f"iif(n % 3 = 0, {AUTOGRAD_THREAD}, {MAIN_THREAD})", "n + 100", LAUNCH_NAME_ID, 0, "NULL",
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How many kernels, each with a launch, and how many ranges on each level of nesting; each divides the next."""

    name: str
    kernels: int
    ranges_by_level: tuple[int, ...]
    numbered_calls: bool = False  # a name per call, as emit_nvtx writes them
    overlap: float = 1.0  # how many times its part a range of the innermost level lasts; above 1 they do not nest

    @property
    def ranges(self) -> int:
        return sum(self.ranges_by_level)


SIZES = {
    size.name: size
    for size in (
        Size("1m_kernels", 1_000_000, (10, 1_000, 50_000, 150_000)),
        Size(
            "1m_ranges", 100_000, (100, 1_000, 10_000, 100_000, 100_000, 200_000, 200_000, 400_000), numbered_calls=True
        ),
        Size("200k_overlapping", 1_000_000, (10, 1_000, 200_000), overlap=2.5),
        Size("10m_kernels", 10_000_000, (100, 10_000, 500_000, 1_500_000)),
    )
}


def write_capture(path: Path, size: Size) -> None:
    """Writes the capture to PATH. Every third kernel is launched by a thread without ranges, as by autograd's."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with sqlite3.connect(partial) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        _numbered(connection, "CUPTI_ACTIVITY_KIND_KERNEL", size.kernels, KERNEL_TERMS, KERNEL_COLUMNS)
        _numbered(connection, "CUPTI_ACTIVITY_KIND_RUNTIME", size.kernels, RUNTIME_TERMS, RUNTIME_COLUMNS)
        _fill(connection, "NVTX_EVENTS", NVTX_COLUMNS, _ranges(size))
        names = [(i, f"void kernel_{i}<float, {i}>(float const*, float*, int)") for i in range(KERNEL_NAMES)]
        connection.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        names.append((LAUNCH_NAME_ID, "cudaLaunchKernel_v7000"))
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", names)
        _fill(connection, "META_DATA_EXPORT", ("name", "value"), [("EXPORT_SCHEMA_VERSION", "3.20.3")])
    connection.close()
    partial.replace(path)


def _fill(connection: sqlite3.Connection, table: str, columns: tuple[str, ...], rows) -> None:
    text = {"text", "jsonText", "binaryData", "name", "value"}
    types = ", ".join(f'"{name}" {"TEXT" if name in text else "INTEGER"}' for name in columns)
    connection.execute(f"CREATE TABLE {table} ({types})")
    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)


def _numbered(connection: sqlite3.Connection, table: str, rows: int, terms: tuple[object, ...], columns) -> None:
    """Makes a table of so many rows, whose TERMS are SQL of the row's number n: far faster than rows from Python."""
    _fill(connection, table, columns, ())
    numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {rows})"
    connection.execute(f"INSERT INTO {table} {numbers} SELECT {', '.join(map(str, terms))} FROM numbers")


def _ranges(size: Size) -> Iterator[tuple]:
    """Ranges by level; those of a level fill their part of the ones above, or reach over it into the next ones."""
    total_ns = size.kernels * NS_PER_LAUNCH
    values = (None,) * (len(NVTX_COLUMNS) - 11)
    for level, count in enumerate(size.ranges_by_level):
        for number in range(count):
            inner = level >= len(size.ranges_by_level) - 2
            name = f"level {level} part {number % NAMES_OF_INNER_RANGES if inner else 0}"
            text = f"{name}, seq = {number}, op_id = {number}" if size.numbered_calls else name
            parts = size.overlap if level == len(size.ranges_by_level) - 1 else 1
            start, end = number * total_ns // count + level, int((number + parts) * total_ns // count) - level
            kind = START_END if parts > 1 else PUSH_POP
            yield start, end, kind, None, None, None, text, MAIN_THREAD, None, None, 0, *values
