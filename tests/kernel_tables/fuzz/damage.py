"""Ways to damage a capture. Each is a function of a file and a random.Random that changes the file in place."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random

HEADER_BYTES = 100
LEAF_OF_TABLE = 13  # the first byte of such a page
HOSTILE_INTEGERS = (None, -1, 0, 1, -(2**63), 2**63 - 1, 2**62, 2**53 + 1, -5, 2**31, 10**18)
HOSTILE_VALUES = (*HOSTILE_INTEGERS, "7); DROP TABLE StringIds; --", "text", "", b"\xff\x00", 1.5, 9e99, float("inf"))
HOSTILE_NAMES = (
    b"caf\xe9", b"\xff\xfe\x00", b"a\x00b", b"\xed\xa0\x80", "a\r\nb", "\x1b[31mred\x1b[0m", "=cmd|'/c calc'!A1", "+1",
    "-1+1", "@SUM(A1)", "\t=1", "", " ", "a > b", "x" * 100_000, "mean_" * 5000, "device" * 5000, "(" * 5000, "🧨",
    "\u202egnp", '"quoted", b', "'", "\\x1b", "a|b`c`<d>", "\x85\x9b\u2028", "aten::" + "_" * 5000, None, 7, 1.5,
)  # fmt: skip
INTERESTING_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "StringIds",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "DIAGNOSTIC_EVENT",
    "ANALYSIS_DETAILS", "META_DATA_EXPORT",
)  # fmt: skip
NAME_COLUMNS = (
    ("StringIds", "value"), ("NVTX_EVENTS", "text"), ("DIAGNOSTIC_EVENT", "text"), ("META_DATA_EXPORT", "value"),
    ("META_DATA_EXPORT", "name"), ("ENUM_CUDA_MEMCPY_OPER", "label"),
)  # fmt: skip

Damage = Callable[[Path, Random], None]


def flip_bits(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def change_header(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 2, 10))):
        content[random.randrange(16, HEADER_BYTES)] = random.randrange(256)
    path.write_bytes(content)


def change_page_header(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    begin = random.choice(_pages(content))
    for _ in range(random.choice((1, 2, 4))):
        content[begin + random.randrange(40)] = random.randrange(256)
    path.write_bytes(content)


def change_a_row(path: Path, random: Random) -> None:
    """A bit of what a row of a table says about itself: its length, its number, the types of its columns."""
    content = bytearray(path.read_bytes())
    begin = random.choice([begin for begin in _pages(content) if content[begin] == LEAF_OF_TABLE])
    pointer = begin + 8 + 2 * random.randrange(int.from_bytes(content[begin + 3 : begin + 5], "big"))
    cell = begin + int.from_bytes(content[pointer : pointer + 2], "big")
    content[cell + random.randrange(24)] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def overwrite_a_page(path: Path, random: Random) -> None:
    """A page of zeros, of noise, or of another page."""
    content, size = bytearray(path.read_bytes()), _page_size(path.read_bytes())
    begin, other = random.choice(_pages(content)), random.choice(_pages(content))
    content[begin : begin + size] = random.choice((bytes(size), random.randbytes(size), content[other : other + size]))
    path.write_bytes(content)


def exchange_pages(path: Path, random: Random) -> None:
    content, size = bytearray(path.read_bytes()), _page_size(path.read_bytes())
    one, other = random.choice(_pages(content)), random.choice(_pages(content))
    kept = content[one : one + size]
    content[one : one + size] = content[other : other + size]
    content[other : other + size] = kept
    path.write_bytes(content)


def zero_the_tail(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    begin = random.randrange(len(content) // 4, len(content))
    content[begin:] = bytes(len(content) - begin)
    path.write_bytes(content)


def truncate(path: Path, random: Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: random.randrange(len(content))])


def truncate_and_say_so(path: Path, random: Random) -> None:
    """Cut off at a page, with a header that promises no more."""
    content, size = bytearray(path.read_bytes()), _page_size(path.read_bytes())
    pages = random.randrange(1, max(2, len(content) // size))
    content[28:32] = pages.to_bytes(4, "big")
    path.write_bytes(content[: pages * size])


def shift(path: Path, random: Random) -> None:
    content = path.read_bytes()
    begin = random.randrange(HEADER_BYTES, len(content))
    path.write_bytes(content[:begin] + content[begin + random.choice((1, 16, 512)) :])


def cut_the_gzip(path: Path, random: Random) -> None:
    """Gzipped, and perhaps damaged then."""
    packed = bytearray(gzip.compress(path.read_bytes(), 1))
    if random.random() < 0.7:
        packed[random.randrange(len(packed))] ^= 1 << random.randrange(8)
    if random.random() < 0.3:
        packed = packed[: random.randrange(len(packed))]
    path.write_bytes(packed)


def change_values(path: Path, random: Random) -> None:
    """Any value in any column of some rows."""
    with _opened(path) as database:
        for _ in range(random.choice((1, 1, 3))):
            table = _a_table(database, random)
            column = random.choice(_columns(database, table))
            _set_some(database, table, column, random.choice(HOSTILE_VALUES), random)


def change_times(path: Path, random: Random) -> None:
    """Times that cannot be, in one row, some rows or all."""
    with _opened(path) as database:
        tables = [table for table in _tables(database) if {"start", "end"} <= set(_columns(database, table))]
        table, column = random.choice(tables), random.choice(("start", "end"))
        change = random.choice(
            (
                '"end" - start',
                '"end" + 1000000000000',
                "start - 1",
                "-start",
                "NULL",
                str(2**63 - 1),
                "start + 2",
                '"end"',
            )
        )
        rows = random.choice(("rowid % 7 = 3", "rowid = 5", "TRUE"))
        database.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = {change} WHERE {rows}')


def change_names(path: Path, random: Random) -> None:
    with _opened(path) as database:
        for _ in range(random.choice((1, 3))):
            table, column = random.choice(NAME_COLUMNS)
            if column in _columns(database, table):
                _set_some(database, table, column, random.choice(HOSTILE_NAMES), random, as_text=True)


def drop_a_table(path: Path, random: Random) -> None:
    with _opened(path) as database:
        table = _a_table(database, random)
        database.execute(random.choice((f'DROP TABLE "{table}"', f'DELETE FROM "{table}"')))


def drop_rows(path: Path, random: Random) -> None:
    with _opened(path) as database:
        database.execute(f'DELETE FROM "{_a_table(database, random)}" WHERE rowid % {random.choice((2, 5, 50))} = 1')


def repeat_rows(path: Path, random: Random) -> None:
    with _opened(path) as database:
        table = _a_table(database, random)
        database.execute(f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" LIMIT 10')


def change_the_schema(path: Path, random: Random) -> None:
    """A column dropped or renamed, a table renamed, or a column more."""
    with _opened(path) as database:
        table = _a_table(database, random)
        column = random.choice(_columns(database, table))
        database.execute(
            random.choice(
                (
                    f'ALTER TABLE "{table}" DROP COLUMN "{column}"',
                    f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}2"',
                    f'ALTER TABLE "{table}" RENAME TO "{table}2"',
                    f'ALTER TABLE "{table}" ADD COLUMN "more" TEXT',
                )
            )
        )


def put_a_view_in_place_of_a_table(path: Path, random: Random) -> None:
    with _opened(path) as database:
        table = _a_table(database, random)
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        columns = ", ".join(f'x AS "{column}"' for column in _columns(database, table))
        database.execute(f'ALTER TABLE "{table}" RENAME TO "real"')
        database.execute(
            random.choice(
                (
                    f'CREATE VIEW "{table}" AS SELECT * FROM "real"',
                    f'CREATE VIEW "{table}" AS SELECT * FROM "{table}"',
                    f'CREATE VIEW "{table}" AS {endless} SELECT {columns} FROM n',
                )
            )
        )


def leave_whole(path: Path, random: Random) -> None:
    """None; so that what refuses everything does not pass."""


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        flip_bits, change_header, change_page_header, change_a_row, overwrite_a_page, exchange_pages, zero_the_tail,
        truncate, truncate_and_say_so, shift, cut_the_gzip, change_values, change_times, change_names, drop_a_table,
        drop_rows, repeat_rows, change_the_schema, put_a_view_in_place_of_a_table, leave_whole,
    )
}  # fmt: skip


class _opened:
    """The database of a file, for changes; a change that SQLite refuses is not made."""

    def __init__(self, path: Path):
        self._database = sqlite3.connect(path)
        self._database.text_factory = lambda raw: raw.decode("utf-8", "replace")

    def __enter__(self) -> sqlite3.Connection:
        return self._database

    def __exit__(self, kind: type | None, *_) -> bool:
        with closing(self._database), suppress(sqlite3.Error):
            self._database.commit()
        return kind is not None and issubclass(kind, sqlite3.Error)


def _set_some(database, table: str, column: str, value, random: Random, as_text: bool = False) -> None:
    """One value in one row, in some, or in all; bytes as text that is not UTF-8."""
    mark = "CAST(? AS TEXT)" if as_text and isinstance(value, bytes) else "?"
    rows = random.choice((f"rowid % {random.choice((3, 20))} = 1", f"rowid = {random.randrange(1, 60)}", "TRUE"))
    database.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = {mark} WHERE {rows}', (value,))


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _a_table(database: sqlite3.Connection, random: Random) -> str:
    """Mostly one of those that are read."""
    tables = _tables(database)
    wanted = [table for table in tables if table in INTERESTING_TABLES]
    return random.choice(wanted if random.random() < 0.9 else tables)


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def _page_size(content: bytes) -> int:
    return int.from_bytes(content[16:18], "big")


def _pages(content: bytes) -> range:
    return range(0, len(content) - _page_size(content) + 1, _page_size(content))
