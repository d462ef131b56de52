"""What of a capture may be shown to anybody."""

import errno
import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kernel_tables.errors import TraceError
from kernel_tables.reading import publishable
from kernel_tables.reading.publishable import without_names, without_paths, write_publishable
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import START_END, Synthetic

CANARY = "CANARYq7x"


@pytest.fixture
def publish(tmp_path):
    """A function that makes a capture with these SQL statements and gives the connection to its publishable copy."""
    opened = []

    def make(*statements):
        source, target = tmp_path / "full.sqlite", tmp_path / "published.sqlite"
        with closing(sqlite3.connect(source)) as database, database:
            for statement in statements:
                database.execute(statement)
        write_publishable(source, target)
        opened.append(sqlite3.connect(target))
        return opened[-1]

    make.folder = tmp_path
    yield make
    for database in opened:
        database.close()


STRINGS = "CREATE TABLE StringIds (id INTEGER, value TEXT)"
NVTX = "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER)"


def test_only_the_strings_that_a_kept_row_refers_to_are_copied(publish):
    copy = publish(
        STRINGS,
        NVTX,
        "INSERT INTO StringIds VALUES (1, 'forward'), (2, 'bash'), (3, 'HOME=/root')",
        "INSERT INTO NVTX_EVENTS VALUES (0, 1, 59, NULL, 1)",
        "CREATE TABLE ThreadNames (nameId INTEGER)",
        "INSERT INTO ThreadNames VALUES (2)",
    )
    assert copy.execute("SELECT * FROM StringIds").fetchall() == [(1, "forward")]
    assert copy.execute("SELECT name FROM sqlite_master WHERE name = 'ThreadNames'").fetchall() == []


@pytest.mark.parametrize("registered", [False, True])
def test_of_a_window_nothing_stays_that_began_before_it_but_the_names_of_domains(tmp_path, registered):
    made = Synthetic().domain(3, "NCCL", at=1).range("recording", 2, 900, kind=START_END).diagnostic(3, "a warning")
    made.range("warmup", 10, 40).range("step", 10, 40, registered=registered).range("measure", 11, 13).kernel(
        "cold", at=12
    ).kernel("cold", at=14)
    made.range("measure", 100, 190, registered=registered).range("step", 100, 150, registered=registered)
    made.kernel("warm", at=100).memcpy(at=120).range("measure", 300, 310).kernel("later", at=305)
    source = made.write(tmp_path / "full.sqlite")
    for window, kept in (
        ("measure", {"warm", "later"}),
        ("absent", {"cold", "warm", "later"}),
        (None, {"cold", "warm", "later"}),
    ):
        target = tmp_path / f"published-{window}.sqlite"
        write_publishable(source, target, window)
        with Trace(target) as trace:
            assert set(trace.kernels()["kernel"]) == kept | {"[CUDA memcpy Host-to-Device]"}
            assert ("warmup" in set(trace.ranges()["range"])) == ("cold" in kept)
    with closing(sqlite3.connect(tmp_path / "published-measure.sqlite")) as copy:
        assert copy.execute("SELECT min(start) FROM NVTX_EVENTS WHERE eventType != 75").fetchone() == (100,)
        assert copy.execute("SELECT text FROM NVTX_EVENTS WHERE eventType = 75").fetchall() == [("NCCL",)]
        assert copy.execute("SELECT text FROM DIAGNOSTIC_EVENT").fetchall() == [("a warning",)]
        assert "cold" not in {value for (value,) in copy.execute("SELECT value FROM StringIds")}


def test_an_environment_hidden_behind_nul_bytes_is_left_out(publish):
    copy = publish(
        STRINGS,
        f"INSERT INTO StringIds VALUES (1, CAST(X'504154483D2F62696E00' || '{CANARY}' AS TEXT))",
        "CREATE TABLE PROCESSES (globalPid INTEGER, name TEXT)",
    )
    assert copy.execute("SELECT count(*) FROM StringIds").fetchone() == (0,)
    assert CANARY.encode() not in (publish.folder / "published.sqlite").read_bytes()


@pytest.mark.parametrize(
    "table",
    ["PROCESSES", "ProcessStreams", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "ANALYSIS_FILE", "NEW_TABLE"],
)
def test_a_table_that_is_not_listed_is_left_out(publish, table):
    copy = publish(f"CREATE TABLE {table} (value TEXT)", f"INSERT INTO {table} VALUES ('{CANARY}')", NVTX)
    assert copy.execute("SELECT name FROM sqlite_master").fetchall() == [("NVTX_EVENTS",)]


def test_what_is_left_out_of_a_kept_table_stands_nowhere_in_the_file(publish):
    """A row that is copied and then deleted would still be in the file's free space."""
    copy = publish(
        "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)",
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_INPUT_PATH_ABS', '/home/{CANARY}/x.nsys-rep')",
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_HOST', '{CANARY}'), ('EXPORT_SCHEMA_VERSION', '3.20.3')",
        "CREATE TABLE TARGET_INFO_GPU (name TEXT, uuid TEXT, busLocation TEXT, smCount INTEGER)",
        f"INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H200', 'GPU-{CANARY}', '0000:{CANARY}', 132)",
    )
    assert copy.execute("SELECT * FROM META_DATA_EXPORT").fetchall() == [("EXPORT_SCHEMA_VERSION", "3.20.3")]
    assert copy.execute("SELECT * FROM TARGET_INFO_GPU").fetchall() == [("NVIDIA H200", None, None, 132)]
    assert CANARY.encode() not in (publish.folder / "published.sqlite").read_bytes()


def test_of_nsyss_messages_warnings_and_counts_stay_without_names_and_paths(publish):
    copy = publish(
        "CREATE TABLE DIAGNOSTIC_EVENT (severity INTEGER, text TEXT)",
        f"INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 'Process {CANARY} was launched by the profiler')",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 'Number of CUDA events collected: 12')",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (2, 'Not all CUDA events might have been collected.')",
        f"""INSERT INTO DIAGNOSTIC_EVENT VALUES (3, 'cannot read /home/{CANARY}/a of "{CANARY}", TOKEN={CANARY}')""",
    )
    assert [text for (text,) in copy.execute("SELECT text FROM DIAGNOSTIC_EVENT ORDER BY severity, text")] == [
        "Number of CUDA events collected: 12",
        "Not all CUDA events might have been collected.",
        "cannot read <path> of <name>, TOKEN=<value>",
    ]


def test_ranges_and_kernels_are_copied_as_they_are(publish):
    copy = publish(
        STRINGS,
        NVTX,
        "INSERT INTO NVTX_EVENTS VALUES (0, 9, 59, 'a range/of one''s own', NULL)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, shortName INTEGER, demangledName INTEGER)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 1, 2)",
        "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'void gemm<float>(float*)')",
        "CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, label TEXT)",
        "INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'Host-to-Device')",
    )
    assert copy.execute("SELECT * FROM NVTX_EVENTS").fetchall() == [(0, 9, 59, "a range/of one's own", None)]
    assert copy.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall() == [(5, 1, 2)]
    assert copy.execute("SELECT * FROM StringIds ORDER BY id").fetchall()[1] == (2, "void gemm<float>(float*)")
    assert copy.execute("SELECT * FROM ENUM_CUDA_MEMCPY_OPER").fetchall() == [(1, "Host-to-Device")]


@pytest.mark.parametrize(
    ("table", "columns", "kept"),
    [
        ("NVTX_EVENTS", "start INTEGER, eventType INTEGER, text TEXT", (5, 59, "forward")),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start INTEGER, deviceId INTEGER", (5, 0)),
        ("OSRT_API", "start INTEGER, nameId INTEGER", (5, None)),
        ("TARGET_INFO_GPU", "name TEXT, chipName TEXT, smCount INTEGER", ("NVIDIA H200", "GH100", 132)),
        ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs INTEGER, utcTime TEXT", (5, "2026-01-01 00:00:00")),
        ("META_DATA_EXPORT", "name TEXT NOT NULL, value TEXT", ("EXPORT_SCHEMA_VERSION", "3.20.3")),
        ("ENUM_NSYS_NEW", "id INTEGER, name TEXT, label TEXT", (1, "ONE", "one")),
        ("StringIds", "id INTEGER, value TEXT", (1, "gemm")),
    ],
)
def test_a_column_of_text_that_a_later_nsys_adds_stays_out_and_one_of_numbers_stays(publish, table, columns, kept):
    values = ", ".join("NULL" if value is None else repr(value) for value in kept)
    new = "path TEXT, host TEXT NOT NULL, blob BLOB, untyped, declared_a_number INTEGER, number INTEGER, ratio REAL"
    copy = publish(
        "CREATE TABLE CUDA_GRAPH_NODE_EVENTS (nameId INTEGER)",
        "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (1)",  # the string that is used
        f"CREATE TABLE {table} ({columns}, {new})",
        f"INSERT INTO {table} VALUES ({values}, '/home/{CANARY}', '{CANARY}', CAST('{CANARY}' AS BLOB), '{CANARY}',"
        f" '{CANARY}', 7, 0.5)",
    )
    assert copy.execute(f"SELECT * FROM {table}").fetchall() == [(*kept, "", "", "", "", "", 7, 0.5)]
    assert CANARY.encode() not in (publish.folder / "published.sqlite").read_bytes()


CAPTURES = sorted((Path(__file__).parents[1] / "captures").rglob("*.sqlite.gz"))


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_a_real_capture_that_was_published_is_published_again_as_it_is(tmp_path, path):
    source, target = tmp_path / "full.sqlite", tmp_path / "published.sqlite"
    source.write_bytes(gzip.decompress(path.read_bytes()))
    write_publishable(source, target)
    with closing(sqlite3.connect(source)) as before, closing(sqlite3.connect(target)) as after:
        there, published = rows_of(before), rows_of(after)
    chosen = {"StringIds", *publishable.KEPT_ROWS} & set(there)  # of which older copies have more rows
    for table in chosen:
        assert published[table] and set(published[table]) <= set(there[table])
    others = there.keys() - chosen  # an empty table that only this project writes may be left out
    assert [table for table in others if published.get(table, []) != there[table]] == []


def rows_of(database: sqlite3.Connection) -> dict[str, list[tuple]]:
    """The rows of every table without the columns that identify a GPU, of which older copies have more."""
    found = {}
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
        kept = ", ".join(f'"{column}"' for column in columns if column not in publishable.IDENTIFYING_COLUMNS)
        found[name] = database.execute(f'SELECT {kept} FROM "{name}"').fetchall()
    return found


def test_a_text_in_the_place_of_a_number_does_not_become_one(tmp_path):
    made = Synthetic().range("step", 0, 9).kernel("gemm", at=1).write(tmp_path / "full.sqlite")
    with closing(sqlite3.connect(made)) as database, database:
        database.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = '{CANARY}'")
    write_publishable(made, tmp_path / "published.sqlite")
    assert CANARY.encode() not in (tmp_path / "published.sqlite").read_bytes()
    with Trace(tmp_path / "published.sqlite") as trace:
        assert "wrong_type" in [finding.code for finding in trace.check()]


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9])
def test_an_export_that_is_cut_short_is_no_capture(tmp_path, kept):
    source = tmp_path / "full.sqlite"
    with closing(sqlite3.connect(source)) as database, database:
        database.execute(NVTX)
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, 1, 59, ?, NULL)", [(n, "x" * 500) for n in range(500)])
    whole = source.read_bytes()
    source.write_bytes(whole[: int(kept * len(whole))] or b"no database at all")
    with pytest.raises(TraceError, match="cut short"):
        write_publishable(source, tmp_path / "published.sqlite")


def test_an_export_with_damaged_pages_is_not_laundered_into_a_sound_copy(tmp_path):
    source = tmp_path / "full.sqlite"
    with closing(sqlite3.connect(source)) as database, database:
        database.execute(NVTX)
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, 1, 59, ?, NULL)", [(n, "x" * 500) for n in range(500)])
    content = bytearray(source.read_bytes())
    content[-3000:] = bytes(3000)  # the cells of the last page, not its head
    source.write_bytes(content)
    with closing(sqlite3.connect(source)) as database:  # SQLite reads it without a word
        assert database.execute("SELECT count(*) FROM NVTX_EVENTS").fetchone() == (500,)
    with pytest.raises(TraceError, match="damaged or cut short"):
        write_publishable(source, tmp_path / "published.sqlite")


def test_a_message_that_is_no_text_is_copied_with_a_replacement_mark(publish):
    copy = publish(
        "CREATE TABLE DIAGNOSTIC_EVENT (severity INTEGER, text TEXT)",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (2, CAST(x'636166e9' AS TEXT)), (2, x'636166e9'), (2, 7), (2, NULL)",
        f"INSERT INTO DIAGNOSTIC_EVENT VALUES (2, '{'a.' * 50_000}')",
    )
    texts = [text for (text,) in copy.execute("SELECT text FROM DIAGNOSTIC_EVENT ORDER BY rowid")]
    assert texts[:4] == ["caf\ufffd", "caf\ufffd", "7", None]
    assert len(texts[4]) == 1000


def test_a_table_with_columns_that_are_computed_is_not_copied(tmp_path):
    source = tmp_path / "full.sqlite"
    with closing(sqlite3.connect(source)) as database, database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, x AS (start + 1))")
        database.execute("INSERT INTO NVTX_EVENTS VALUES (1)")
    with pytest.raises(TraceError, match="columns of NVTX_EVENTS are computed"):
        write_publishable(source, tmp_path / "published.sqlite")


def test_a_full_disk_is_the_systems_error_and_not_a_damaged_capture(tmp_path, monkeypatch):
    source = tmp_path / "full.sqlite"
    with closing(sqlite3.connect(source)) as database, database:
        database.execute(NVTX)
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    def fail(*_):
        raise full

    monkeypatch.setattr(publishable, "_copy_kept_tables", fail)
    with pytest.raises(OSError, match="No space left") as raised:
        write_publishable(source, tmp_path / "published.sqlite")
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("see /home/ada/secret.log for more", "see <path> for more"),
        ("cannot open '/opt/x y': no", "cannot open '<path> y': no"),
        ("results/runs/a/capture.sqlite is cut", "<path> is cut"),
        ("~/.config/nsys is missing", "<path> is missing"),
        (r"C:\Users\ada\x.exe failed", "<path> failed"),
        ("get it from https://developer.nvidia.com/nsight-systems", "get it from https://developer.nvidia.com/nsight-systems"),
        ("read/write at 3/4", "read/write at 3/4"),
    ],
)  # fmt: skip
def test_paths_leave_a_text_and_addresses_stay(text, published):
    assert without_paths(text) == published


def test_names_that_nsys_quotes_and_values_it_shows_leave_a_text():
    text = """process 'secret-tool' of `bob` with "x" and TOKEN=abc"""
    assert without_names(text) == "process <name> of <name> with <name> and TOKEN=<value>"
