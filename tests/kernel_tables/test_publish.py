"""What of a capture may be shown to anybody, and captures of traces that are read back as they were."""

import errno
import gzip
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables import export, publish
from kernel_tables.errors import TraceError
from kernel_tables.publish import write_capture, write_publishable
from tests.kernel_tables.synthetic import START_END, Synthetic, changed

CAPTURES = Path(__file__).parents[1] / "captures"
CANARY = "CANARYq7x"
STRINGS = "CREATE TABLE StringIds (id INTEGER, value TEXT)"
NVTX = "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER)"
FACTS = "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)"


@pytest.fixture
def published(tmp_path):
    """A function that gives the tables of the publishable copy of a capture of SQL statements; no canary is in it."""

    def make(*statements):
        source, target = tmp_path / "full.sqlite", tmp_path / "published.sqlite"
        write_publishable(changed(source, *statements), target)
        assert CANARY.encode() not in target.read_bytes()
        return rows_of(target)

    return make


def rows_of(path: Path) -> dict[str, list[tuple]]:
    """The rows of every table."""
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: database.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}


def test_only_listed_tables_and_strings_that_a_kept_row_refers_to_are_copied(published):
    assert published(
        STRINGS,
        f"INSERT INTO StringIds VALUES (1, 'forward'), (2, 'bash'), (3, 'HOME=/{CANARY}'), (4, '{CANARY}')",
        f"INSERT INTO StringIds VALUES (5, CAST(X'504154483D2F62696E00' || '{CANARY}' AS TEXT))",  # behind NUL
        NVTX,
        "INSERT INTO NVTX_EVENTS VALUES (0, 1, 59, NULL, 1), (0, 9, 59, 'a range/of one''s own', NULL)",
        "CREATE TABLE ThreadNames (nameId INTEGER)",
        "INSERT INTO ThreadNames VALUES (2)",
        *(f"CREATE TABLE {table} (value TEXT)" for table in ("PROCESSES", "META_DATA_CAPTURE", "NEW_TABLE")),
        *(f"INSERT INTO {table} VALUES ('{CANARY}')" for table in ("PROCESSES", "META_DATA_CAPTURE", "NEW_TABLE")),
        FACTS,
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_INPUT_PATH_ABS', '/home/{CANARY}/x.nsys-rep')",
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_HOST', '{CANARY}'), ('EXPORT_SCHEMA_VERSION', '3.20.3')",
        "CREATE TABLE TARGET_INFO_GPU (name TEXT, uuid TEXT, busLocation TEXT, smCount INTEGER)",
        f"INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H200', 'GPU-{CANARY}', '0000:{CANARY}', 132)",
    ) == {
        "StringIds": [(1, "forward")],
        "NVTX_EVENTS": [(0, 1, 59, None, 1), (0, 9, 59, "a range/of one's own", None)],
        "META_DATA_EXPORT": [("EXPORT_SCHEMA_VERSION", "3.20.3")],
        "TARGET_INFO_GPU": [("NVIDIA H200", None, None, 132)],
    }


def test_of_columns_that_a_later_nsys_adds_only_numbers_stay(published):
    new = "path TEXT, host TEXT NOT NULL, blob BLOB, untyped, declared_a_number INTEGER, number INTEGER, ratio REAL"
    values = f"'/home/{CANARY}', '{CANARY}', CAST('{CANARY}' AS BLOB), '{CANARY}', '{CANARY}', 7, 0.5"
    copy = published(
        f"CREATE TABLE NVTX_EVENTS (start INTEGER, text TEXT, {new})",
        f"INSERT INTO NVTX_EVENTS VALUES (5, 'forward', {values})",
        f"CREATE TABLE ENUM_NSYS_NEW (id INTEGER, name TEXT, label TEXT, {new})",
        f"INSERT INTO ENUM_NSYS_NEW VALUES (1, 'ONE', 'one', {values})",
    )
    rest = ("", "", "", "", "", 7, 0.5)
    assert copy == {"NVTX_EVENTS": [(5, "forward", *rest)], "ENUM_NSYS_NEW": [(1, "ONE", "one", *rest)]}


def test_of_messages_warnings_and_counts_stay_without_names_and_paths(published):
    message = "INSERT INTO DIAGNOSTIC_EVENT VALUES"
    copy = published(
        FACTS,
        "CREATE TABLE DIAGNOSTIC_EVENT (severity INTEGER, text TEXT)",
        f"{message} (1, 'Process {CANARY} was launched by the profiler'), (1, 'Number of CUDA events collected: 12')",
        f"""{message} (3, 'cannot read /home/{CANARY}/a of "{CANARY}", TOKEN={CANARY}, read/write at 3/4')""",
        rf"{message} (2, 'C:\Users\{CANARY}\x.exe of `{CANARY}` and ~/.{CANARY}/nsys: see https://nvidia.com/x/y/z')",
        f"{message} (2, CAST(x'636166e9' AS TEXT)), (2, 7), (2, NULL), (2, '{'a.' * 50_000}')",
    )
    assert [text for _, text in copy["DIAGNOSTIC_EVENT"]] == [
        "Number of CUDA events collected: 12",
        "cannot read <path> of <name>, TOKEN=<value> read/write at 3/4",
        "<path> of <name> and <path> see https://nvidia.com/x/y/z",
        "caf\ufffd", "7", None, "a." * 500,
    ]  # fmt: skip


@pytest.mark.parametrize("registered", [False, True])
def test_of_a_window_nothing_stays_that_began_before_it_but_the_names_of_domains(tmp_path, registered):
    made = Synthetic().domain(3, "NCCL", at=1).range("recording", 2, 900, kind=START_END).diagnostic(3, "a warning")
    made.range("warmup", 10, 40).range("measure", 11, 13).kernel("cold", at=12).kernel("cold", at=14)
    made.range("measure", 100, 190, registered=registered).kernel("warm", at=100).memcpy(at=120)
    made.range("measure", 300, 310).kernel("later", at=305)
    source = made.write(tmp_path / "full.sqlite")
    for window, kept in (("measure", {"warm", "later"}), ("absent", {"cold", "warm", "later"})):
        target = tmp_path / f"{window}.sqlite"
        write_publishable(source, target, window)
        with kernel_tables.read(target) as profile:
            assert set(profile.kernels()["kernel"]) == kept | {"[CUDA memcpy Host-to-Device]"}
            assert ("warmup" in profile.capture.ranges.names) == ("cold" in kept)
    copy = rows_of(tmp_path / "measure.sqlite")
    assert "cold" not in {value for _, value in copy["StringIds"]}
    assert [row[1] for row in copy["DIAGNOSTIC_EVENT"]] == [3]
    assert min(row[0] for row in copy["NVTX_EVENTS"]) == 1  # the domain


def test_for_one_process_nothing_of_another_stays_and_of_payloads_only_what_nccl_counts(tmp_path):
    made = Synthetic().range("step", 0, 1000).range("step", 0, 1000, process=2).diagnostic(2, "of another", process=2)
    made.nccl("ncclAllReduce", 10, 20, 1000, 7).nccl("ncclBroadcast", 10, 20, 500, 7, process=2)
    made.kernel("ncclKernel_AllReduce", at=11).kernel(CANARY, at=11, process=2, device=1)
    made.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"].append({"domainId": 9, "schemaId": 9, "type": 1, "name": CANARY})
    source = made.write(tmp_path / "source.sqlite")
    changed(source, f"UPDATE NVTX_EVENTS SET binaryData = CAST('{CANARY}' AS BLOB) WHERE text = 'step'")
    write_publishable(source, tmp_path / "published.sqlite", process=1)
    with kernel_tables.read(tmp_path / "published.sqlite") as profile:
        assert profile.kernels()["kernel"].tolist() == ["ncclKernel_AllReduce"] and not profile.capture.messages
        assert [(call.bytes, call.communicator) for call in profile.capture.source.nccl_calls()] == [(1000, 7)]
    published = (tmp_path / "published.sqlite").read_bytes()
    assert CANARY.encode() not in published and struct.pack("<I", 0xABCD) not in published  # what was in the gap


def test_sampled_python_stacks_stay_with_functions_and_files_without_folders(tmp_path):
    made = Synthetic().domain(3, "NCCL").range("step", 0, 9)
    packages = "/v/lib/python3.12/site-packages"
    made.python_sample(5, ("norm", f"/home/{CANARY}/x y/model.py"), ("run", f"{packages}/torch/_x.py"))
    made.python_sample(6, (f"{CANARY}=1", f"/{CANARY}")).python_sample(6, ("<lambda>", f"C:\\{CANARY}\\<string>"))
    made.python_sample(7, ("norm", "model.py"))
    made.rows["NVTX_EVENTS"][-1]["binaryData"] += CANARY.encode()  # which is no stack any more
    made.rows["NVTX_EVENTS"].append({"start": 7, "eventType": 34, "domainId": 3, "binaryData": CANARY.encode()})
    made.string(f"PATH=/home/{CANARY}")
    write_publishable(made.write(tmp_path / "full.sqlite"), tmp_path / "published.sqlite")
    strings = {value for _, value in rows_of(tmp_path / "published.sqlite")["StringIds"]}
    assert strings == {"<lambda>", "<string>", "model", "norm", "run", "torch._x"}
    assert CANARY.encode() not in (tmp_path / "published.sqlite").read_bytes()
    with kernel_tables.read(tmp_path / "published.sqlite") as copy:
        samples = copy.capture.source.host_events()["python"]
        assert [samples["names"][name] for name in samples["name"].tolist()][:2] == ["norm (model)", "(unknown)"]


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.sqlite.gz")), ids=lambda path: path.name)
def test_a_real_capture_that_was_published_is_published_again_as_it_is(tmp_path, path):
    source, target = tmp_path / "full.sqlite", tmp_path / "published.sqlite"
    source.write_bytes(gzip.decompress(path.read_bytes()))
    write_publishable(source, target)
    before, after = rows_of(source), rows_of(target)
    assert {*after["StringIds"]} <= {*before["StringIds"]}
    for table in before.keys() - {"StringIds", "TARGET_INFO_GPU", *publish.KEPT_ROWS}:  # of which older copies had more
        assert after[table] == before[table]


def test_damage_is_not_laundered_into_a_sound_copy_and_of_what_fails_nothing_stays(tmp_path, monkeypatch):
    source, target, connect = tmp_path / "full.sqlite", tmp_path / "published.sqlite", sqlite3.connect
    rows = ", ".join(f"({number}, 1, 59, '{'x' * 500}', NULL)" for number in range(500))
    whole = changed(source, NVTX, f"INSERT INTO NVTX_EVENTS VALUES {rows}").read_bytes()
    zeroed = whole[:-3000] + bytes(3000)  # the cells of the last page, which SQLite reads without a word
    for content in (whole[: len(whole) // 2], zeroed, b"no database at all"):
        source.write_bytes(content)
        with pytest.raises(TraceError, match=r"damaged or cut short|cut off|neither SQLite") as raised:
            write_publishable(source, target)
        assert "\n" not in str(raised.value)
    source.write_bytes(whole)

    def connect_to_full_disk(path, **options):
        database = connect(path, **options)
        database.execute("PRAGMA max_page_count = 3")
        return database

    monkeypatch.setattr(sqlite3, "connect", connect_to_full_disk)
    with pytest.raises(OSError) as raised:
        write_publishable(source, target)
    assert raised.value.errno == errno.ENOSPC and [*tmp_path.iterdir()] == [source]


@pytest.mark.parametrize("path", sorted((CAPTURES / "traces").glob("*.json.gz")), ids=lambda path: path.name)
def test_a_trace_that_was_written_as_sqlite_is_read_back_as_it_was(tmp_path, path):
    def told(profile) -> list:
        """All that is read of a capture."""
        capture, source = profile.capture, profile.capture.source
        capture.load_call_ends()
        columns = vars(capture.nodes) | source.sizes() | source.copies()
        columns |= {name: getattr(capture.calls, name) for name in ("start", "end", "failed", "correlation")}
        tables = [table.drop(columns="path_id").to_csv() for table in (profile.activities(), profile.range_instances())]
        numbers = {name: column.tolist() for name, column in columns.items()}
        return [*tables, numbers, source.torch_collectives(), source.gpus(), source.began_utc_ns()]

    with kernel_tables.read(path) as before:
        write_capture(before.capture, tmp_path / "capture.sqlite")
        with kernel_tables.read(tmp_path / "capture.sqlite") as after:
            assert told(after) == told(before)
            assert after.metadata == before.metadata | {"EXPORT_SCHEMA_VERSION": "3.20.0"}


def test_the_time_of_the_profiler_and_of_host_functions_stays(tmp_path):
    source = Synthetic().range("step", 0, 100).kernel("gemm", at=10).write(tmp_path / "full.sqlite")
    for table in (*export.OVERHEADS, export.HOST_NODE):
        changed(source, f"CREATE TABLE {table} (start, end)", f"INSERT INTO {table} VALUES (20, 30), (9, NULL)")
    write_publishable(source, tmp_path / "published.sqlite")
    with kernel_tables.read(tmp_path / "published.sqlite") as profile:
        assert [column.tolist() for column in profile.capture.overhead] == [[20, 20], [30, 30]]
        assert [column.tolist() for column in profile.capture.host_functions[:2]] == [[20], [30]]
