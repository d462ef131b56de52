"""Exports of nsys as captures: columns, times, names, and what is refused."""

import gzip
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables.errors import ImpossibleCapture, TraceError
from tests.kernel_tables.synthetic import Synthetic, changed, random_capture, thread_id

KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"


def whole() -> Synthetic:
    """A capture of 1 µs that lacks nothing: two steps of two kernels, one registered name, one copy."""
    capture = Synthetic().range("measure", 0, 900).range("registered", 5, 80, registered=True).lasting(0, 1000)
    for step in (0, 400):
        capture.range("step", step + 10, step + 300).kernel("gemm", at=step + 20).kernel("softmax", at=step + 30)
    return capture.memcpy(at=350, size=64, source=0, target=2).memset(at=360).diagnostic(2, "Something is old.")


@pytest.fixture
def path(tmp_path) -> Path:
    return whole().write(tmp_path / "capture.sqlite")


def tables(path: Path) -> list[str]:
    with kernel_tables.read(path) as profile:
        activities = profile.activities().drop(columns=["path_id"])
        made = [profile.kernels(), profile.ranges(), profile.ranges(tree=True), profile.classes()]
        made.append(activities.sort_values(list(activities.columns)).reset_index(drop=True))
        return [table.to_csv() for table in made]


def refusal(path: Path) -> TraceError:
    with pytest.raises(TraceError) as raised:
        kernel_tables.read(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ") and message.isprintable()
    return raised.value


def test_activities_have_names_places_and_what_only_some_commands_need(tmp_path):
    made = whole().kernel("grid", at=500, grid=(16, 6, 8), block=(32, 1, 1), device=1, stream=9).graph(7, at=510)
    with kernel_tables.read(made.write(tmp_path / "capture.sqlite")) as profile:
        capture, work = profile.capture, profile.capture.activities
        assert [work.names[name] for name in work.name] == [
            "gemm", "softmax", "gemm", "softmax", "grid", "[CUDA memcpy Host-to-Device]", "[CUDA memset]",
            "[CUDA graph 7]",
        ]  # fmt: skip
        assert work.device.tolist() == [0] * 4 + [1, 0, 0, 0] and work.stream_number.tolist()[3:5] == [7, 9]
        assert capture.source.sizes()["grid"].tolist() == [""] * 4 + ["16x6x8"] + [""] * 3
        copies = {name: column.tolist()[5] for name, column in capture.source.copies().items()}
        assert copies == {"bytes": 64, "source": 0, "target": 2}
        assert capture.calls.end is None and set(capture.calls.names.values()) == {"cudaLaunchKernel"}
        capture.load_call_ends()
        assert (capture.calls.end - capture.calls.start == 1).all() and not capture.calls.failed.any()
        assert capture.messages == [(2, "Something is old.")] and not capture.is_torch and not capture.is_cpu_only


def test_calls_and_samples_of_the_host(tmp_path):
    made = whole().os_call("poll", 30, 20).sample(40, ("f", "libc.so"), ("forward", "/a/model.py")).sample(50)
    made.python_sample(45, ("forward", "/x/site-packages/torch/nn/modules/linear.py"), ("main", "/home/me/train.py"))
    made.nccl("ncclAllReduce", 100, 110, size=1 << 20).nccl("ncclBroadcast", 120, None)
    with kernel_tables.read(made.write(tmp_path / "capture.sqlite")) as profile:
        source = profile.capture.source
        for found, start, names in (
            (source.host_events()["osrt"], [30], ["poll"]),
            (source.host_events()["sample"], [40, 50], ["forward", "(unknown)"]),
            (source.host_events()["python"], [45], ["forward (torch.nn.modules.linear)"]),
        ):
            assert found["start"].tolist() == start and [found["names"][name] for name in found["name"]] == names
        assert source.nccl_calls() == [(100, 110, thread_id(1), "ncclAllReduce", 1 << 20, 77)]
        assert source.gpus() == [] and source.began_utc_ns() is None and source.torch_collectives() == {}


def test_the_order_of_rows_does_not_count(tmp_path):
    for seed in range(8):
        made = random_capture(seed)
        first = tables(made.write(tmp_path / "first.sqlite"))
        for rows in made.rows.values():
            random.Random(seed).shuffle(rows)
        assert tables(made.write(tmp_path / "second.sqlite")) == first


def test_a_packed_file_is_unpacked_and_removed(path):
    packed = path.with_name("capture.sqlite.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with kernel_tables.read(packed) as profile:
        unpacked = profile.capture.source.file
        assert unpacked.exists() and len(profile.capture.activities) == 6
    assert not unpacked.exists() and tables(packed) == tables(path)


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_pages_of_every_size_and_rows_that_spill_are_read_as_sqlite_reads_them(tmp_path, page):
    made, name = Synthetic().lasting(0, 1 << 40), "long " * 40_000
    numbers = [0, 1, 127, 128, 1 << 15, 1 << 23, 1 << 31, 1 << 39, *range(900)]
    for place, number in enumerate(numbers):
        made.range(name if place == 500 else "long " * (place % 140), number, 1 << 40)
        made.kernel("gemm", at=5, start=number, correlation=place + 1, stream=min(number, 1 << 30) - 1)
    path = made.write(tmp_path / "capture.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page}")
        database.execute("VACUUM")
        expected = [name or "(unnamed)" for (name,) in database.execute("SELECT text FROM NVTX_EVENTS ORDER BY text")]
    with kernel_tables.read(path) as profile:
        work, ranges = profile.capture.activities, profile.capture.ranges
        assert work.start.tolist() == numbers
        assert work.stream_number.tolist() == [min(number, 1 << 30) - 1 for number in numbers]
        assert sorted(ranges.names[name] for name in ranges.name) == sorted(expected)


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        ("no_time", f"UPDATE {NVTX} SET start = NULL WHERE rowid = 3"),
        ("no_time", f'UPDATE {KERNEL} SET "end" = NULL'),
        ("outside_capture", f'UPDATE {NVTX} SET "end" = 1001 WHERE rowid = 3'),
        ("outside_capture", f"UPDATE {RUNTIME} SET start = 2000"),
        ("outside_capture", f'UPDATE {NVTX} SET "end" = NULL; UPDATE {RUNTIME} SET "end" = 9999'),
        ("kernels_without_names", "DROP TABLE StringIds"),
        ("kernels_without_names", "UPDATE StringIds SET value = NULL"),
        ("wrong_type", f"UPDATE {NVTX} SET start = 1.5 WHERE rowid = 3"),
        ("wrong_type", f"UPDATE {NVTX} SET textId = 'text'"),
        ("wrong_type", f"UPDATE {KERNEL} SET demangledName = x'00'"),
        ("damaged_file", f"UPDATE {KERNEL} SET globalPid = NULL WHERE rowid = 3"),
    ],
)
def test_what_a_capture_cannot_hold_gives_no_figure(path, code, statement):
    """The others are in test_check.py."""
    changed(path, *statement.split("; "))
    assert [finding.code for finding in refusal(path).findings] == [code]


def test_ranges_that_were_never_closed_end_with_the_capture_and_may_be_longer_than_it_says(path):
    changed(path, f'UPDATE {NVTX} SET "end" = NULL', "UPDATE ANALYSIS_DETAILS SET startTime = 700, duration = 300")
    with kernel_tables.read(path) as profile:
        ranges = profile.capture.ranges
        assert ranges.unclosed == 4 and set(ranges.end.tolist()) == {445}


def test_calls_that_end_before_they_start_are_refused_when_their_ends_are_needed(path):
    changed(path, f'UPDATE {RUNTIME} SET "end" = start - 1')
    with kernel_tables.read(path) as profile, pytest.raises(ImpossibleCapture, match="end before they start"):
        profile.capture.load_call_ends()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE StringIds SET value = 7 WHERE value = 'gemm'",
        "UPDATE StringIds SET value = CAST(x'636166e9' AS TEXT) WHERE value = 'gemm'",
        f"UPDATE {NVTX} SET text = x'636166e9' WHERE text = 'step'",
        f"UPDATE {NVTX} SET text = NULL",
        "UPDATE DIAGNOSTIC_EVENT SET text = NULL, severity = 'grave'",
        "UPDATE META_DATA_EXPORT SET name = NULL, value = 1.5",
        f"ALTER TABLE {KERNEL} DROP COLUMN deviceId",
        f"ALTER TABLE {NVTX} DROP COLUMN domainId",
        f"ALTER TABLE {NVTX} DROP COLUMN textId",
    ],
)
def test_a_value_of_another_type_or_a_lacking_column_costs_nothing_else(path, statement):
    with kernel_tables.read(changed(path, statement)) as profile:
        assert profile.kernels()["total_ns"].sum() == 60 and profile.check() is not None
        assert not profile.is_cpu_only


def test_what_is_no_export_is_refused_with_what_to_do(path, tmp_path):
    whole, other = path.read_bytes(), changed(tmp_path / "other.sqlite", "CREATE TABLE people (name)").read_bytes()
    for name, content, said in (
        ("run.nsys-rep", b"NSYS" * 99, "nsys export --type sqlite --include-blobs=true run.nsys-rep"),
        ("utf16.sqlite", whole[:56] + b"\0\0\0\2" + whole[60:], "SQLite in UTF-16"),
        ("run.pftrace", b"n", "traceconv json run.pftrace run.pftrace.json"),
        ("run", b"\n\x1d\xd2packet", "Perfetto's protobuf; convert it: traceconv json run run.json"),
        ("other.sqlite", other, "none of its tables is there (found: people)"),
        ("empty.sqlite", b"", "the file is empty"),
        ("cut.sqlite.gz", gzip.compress(whole)[:99], "cannot be unpacked"),
        ("short.sqlite", whole[:-1], f"cut off: {len(whole) - 1} bytes where its header says {len(whole)}"),
        ("capture.sqlite-wal", b"not yet in the file", "neither SQLite nor JSON"),
    ):
        (tmp_path / name).write_bytes(content)
        assert said in str(refusal(tmp_path / name))
    assert "capture.sqlite-wal is next to it" in str(refusal(path))
    (tmp_path / "capture.sqlite-wal").unlink()
    os.mkfifo(tmp_path / "pipe")
    assert "not a capture" in str(refusal(tmp_path / "pipe")) and "No such file" in str(refusal(tmp_path / "absent"))
    changed(path, f"ALTER TABLE {KERNEL} DROP COLUMN correlationId")
    assert f"{KERNEL} has no column correlationId (schema 3.20.3)" in str(refusal(path))
    changed(path, f"ALTER TABLE {KERNEL} RENAME TO {KERNEL}_V2")
    assert f"{KERNEL}_V2 is a table of an nsys that is newer than this program" in str(refusal(path))


@pytest.mark.parametrize("row", ["1, 2, 'all-reduce', 2.5, 3", "1, 2, 'all-reduce', 2, x'03'"])
def test_numbers_of_collectives_are_integers(path, row):
    columns = "globalPid, correlationId, operation, bytes, communicator"
    changed(path, f"CREATE TABLE TORCH_COLLECTIVES ({columns})", f"INSERT INTO TORCH_COLLECTIVES VALUES ({row})")
    with kernel_tables.read(path) as profile, pytest.raises(TraceError, match="numbers of TORCH_COLLECTIVES"):
        profile.capture.source.torch_collectives()
