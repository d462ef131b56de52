"""Captures that are damaged at random: in their bytes, their values, their rows. What may come of one is a refusal in
one line, or figures that are those of what the file says."""

import contextlib
import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

import kernel_tables
from kernel_tables.errors import TraceError
from tests.kernel_tables.synthetic import START_END, Synthetic

REAL = Path(__file__).parents[1] / "captures" / "tiny_2025.3.1.sqlite.gz"
KERNEL, PAGE = "CUPTI_ACTIVITY_KIND_KERNEL", 4096
READ = (  # the tables of which most damage is made
    KERNEL, "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds", "DIAGNOSTIC_EVENT",
    "ANALYSIS_DETAILS", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)  # fmt: skip
VALUES = (
    None, -1, 0, 1, -(2**63), 2**63 - 1, 2**62, 2**53 + 1, 2**31, 10**18, "text", "", b"\xff\x00", 1.5, 9e99,
    float("inf"), "x" * 100_000, "\x1b[31m", "=1", "🧨", "\ud800".encode("utf-8", "surrogatepass"),
)  # fmt: skip


@pytest.fixture(scope="module")
def captures(tmp_path_factory) -> list[Path]:
    """A step of a real capture, and a made-up one with everything that a capture may hold."""
    folder = tmp_path_factory.mktemp("whole")
    step, made = folder / "step.sqlite", Synthetic().range("measure", 0, 900).range("step", 10, 800).lasting(0, 5000)
    step.write_bytes(gzip.decompress(REAL.read_bytes()))
    with closing(sqlite3.connect(step)) as database, database:
        window = database.execute("SELECT start, \"end\" FROM NVTX_EVENTS WHERE text = 'step'").fetchone()
        for table in (KERNEL, "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
            database.execute(f'DELETE FROM {table} WHERE start < ? OR "end" > ?', window)
    with closing(sqlite3.connect(step)) as database:
        database.execute("VACUUM")
    made.range("overlaps", 100, 850, kind=START_END, domain=3, registered=True).domain(3, "my domain")
    made.range("left open", 820, None).range("elsewhere", 5, 700, thread=2).range("other", 0, 600, process=2)
    made.kernel("flash_fwd_kernel", at=20, node=3).kernel("late", at=120, thread=3).kernel("early", at=None)
    made.memcpy(at=200).memset(at=210).graph(7, at=220).kernel("theirs", at=300, process=2).node(3, at=15)
    made.os_call("poll", 30, 20).sample(40, ("f", "libc")).python_sample(45, ("forward", "/model.py"))
    return [step, made.diagnostic(2, "Something is old.").write(folder / "made.sqlite")]


def damage_bytes(content: bytearray, random: Random) -> bool:
    """Damages a file in place; whether only one place is damaged, so that a single value may be another."""
    page = random.randrange(0, len(content) - 2 * PAGE, PAGE)
    one, other = slice(page, page + PAGE), slice(page + PAGE, page + 2 * PAGE)  # often of one table
    begin, kind = random.randrange(100, len(content)), random.randrange(6)
    if kind <= 1:
        content[begin] ^= 1 << random.randrange(8)
    elif kind == 2:  # of a page's own numbers
        content[one.start + random.randrange(40)] = random.randrange(256)
    elif kind == 3:
        content[one] = random.choice((bytes(PAGE), random.randbytes(PAGE), content[other]))
    elif kind == 4:
        content[one], content[other] = content[other], content[one]
    else:
        content[begin:] = random.choice((b"", bytes(len(content) - begin), content[begin + 16 :]))
    return kind <= 2


def damage_tables(database: sqlite3.Connection, random: Random) -> None:
    """Values of any type; rows, columns and tables that are lacking, more, or otherwise named; a view for a table."""
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    table = random.choice([name for name in tables if name in READ or random.random() < 0.1])
    column = random.choice([row[1] for row in database.execute(f"PRAGMA table_info({table})")])
    rows = random.choice(("rowid % 3 = 1", "rowid % 20 = 1", f"rowid = {random.randrange(1, 40)}", "TRUE"))
    statements = (
        f"DROP TABLE {table}", f"DELETE FROM {table} WHERE {rows}", f"ALTER TABLE {table} RENAME TO {table}_V2",
        f"INSERT OR IGNORE INTO {table} SELECT * FROM {table} LIMIT 10", f"ALTER TABLE {table} ADD COLUMN more TEXT",
        f'ALTER TABLE {table} DROP COLUMN "{column}"', f'ALTER TABLE {table} RENAME COLUMN "{column}" TO "{column}2"',
        f'DROP TABLE {table}; CREATE VIEW {table} AS SELECT 1 AS "{column}"',
    )  # fmt: skip
    if random.random() < 0.5:
        database.execute(f'UPDATE {table} SET "{column}" = ? WHERE {rows}', (random.choice(VALUES),))
    else:
        for statement in random.choice(statements).split("; "):
            database.execute(statement)


def kernels_in(path: Path) -> list[tuple] | str:
    """Name, start and end of each kernel; or why there are none."""
    try:
        with kernel_tables.read(path) as profile:
            work = profile.capture.activities
            tables = [profile.ranges(), profile.ranges(tree=True), profile.classes(), profile.range_instances()]
            profile.check()
            profile.capture.load_call_ends()
            _ = profile.capture.source.sizes(), profile.capture.source.host_events(), profile.capture.source.gpus()
            assert (profile.activities()["duration_ns"] >= 0).all() and all(len(table.columns) for table in tables)
            rows = np.flatnonzero(work.kind == 0)
            columns = (column[rows].tolist() for column in (work.name, work.start, work.end))
            return sorted((work.names[name], start, end) for name, start, end in zip(*columns, strict=True))
    except TraceError as error:
        assert str(error).isprintable() and str(error).startswith(str(path)), str(error)
        return str(error)


def kernels_by_sqlite(path: Path) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        column = [row[1] for row in database.execute(f"PRAGMA table_info({KERNEL})")] if (KERNEL,) in tables else []
        value = "SELECT CAST(value AS TEXT) FROM StringIds WHERE id = demangledName LIMIT 1"
        return sorted(database.execute(f'SELECT ({value}), start, "end" FROM {KERNEL}')) if column else []


def test_bytes(captures, tmp_path):
    path, refused = tmp_path / "capture.sqlite", 0
    whole = [kernels_in(capture) for capture in captures]
    for seed in range(100):
        random = Random(seed)
        number = random.randrange(len(captures))
        content = bytearray(captures[number].read_bytes())
        may_be_one = damage_bytes(content, random)
        path.write_bytes(content)
        found = kernels_in(path)
        if isinstance(found, str):
            refused += 1
            continue
        different = len(set(whole[number]) ^ set(found)) / 2 + abs(len(whole[number]) - len(found))
        names = {name for name, _, _ in whole[number]} ^ {name for name, _, _ in found}
        assert different <= may_be_one or len(names) == 2, f"damage {seed} has other figures, and no word of it"
    assert 20 < refused < 100


def test_values_and_rows(captures, tmp_path):
    path, refused = tmp_path / "capture.sqlite", 0
    for seed in range(80):
        random = Random(seed)
        path.write_bytes(random.choice(captures).read_bytes())
        with closing(sqlite3.connect(path)) as database, contextlib.suppress(sqlite3.Error), database:
            damage_tables(database, random)
        found = kernels_in(path)
        refused += isinstance(found, str)
        assert isinstance(found, str) or found == kernels_by_sqlite(path), f"damage {seed} has other figures"
    assert 10 < refused < 70
