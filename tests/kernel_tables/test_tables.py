"""The tables of captures: their sums by brute force, what they keep apart, and their declared columns."""

import gzip
import math
import random
import re
import sqlite3
import statistics
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import kernel_tables
from kernel_tables.attribution import path_text
from kernel_tables.errors import NotConserved, TraceError
from tests.kernel_tables.brute_force import Rows
from tests.kernel_tables.command import run_command
from tests.kernel_tables.synthetic import Synthetic, random_capture

CAPTURES = Path(__file__).parents[1] / "captures"
SUMS = ["kernels", "gpu_time_ns", "memops", "memop_time_ns"]


@pytest.fixture
def read(tmp_path):
    """A function: the profile of a synthetic capture."""
    return lambda capture: kernel_tables.read(capture.write(tmp_path / "capture.sqlite"))


def require_sums(profile: kernel_tables.Profile, rows: Rows, under: str | None) -> None:
    """Asserts that all tables have the sums of the activities inside `under`, and no more."""
    inside = [
        (path, ns, is_memop)
        for path, (ns, *_, is_memop) in zip(rows.paths(), rows.activities, strict=True)
        if under is None or under in path
    ]
    table = profile.ranges(under).set_index("range")[SUMS]
    expected: dict[str, list[int]] = {}
    for names, ns, is_memop in inside:
        for name in {*names[names.index(under) if under else 0 :]}:
            sums = expected.setdefault(name, [0, 0, 0, 0])
            sums[2 * is_memop] += 1
            sums[2 * is_memop + 1] += ns
    assert {name: sums for name, *sums in table[table.any(axis=1)].itertuples()} == expected
    kernels = profile.kernels(under)
    for path, of_path in kernels.groupby("range"):
        mine = [ns for names, ns, _ in inside if path_text(names) == path]
        assert (of_path["launches"].sum(), of_path["total_ns"].sum()) == (len(mine), sum(mine))
    for each in (kernels, profile.classes(under)):
        assert (each["launches"].sum(), each["total_ns"].sum()) == (len(inside), sum(ns for _, ns, _ in inside))
    tree = profile.ranges(under, tree=True)
    for text, *found in tree[["range", *SUMS]].itertuples(index=False):
        below = [one for one in inside if path_text(one[0]) == text or path_text(one[0]).startswith(f"{text} > ")]
        expected = [[ns for _, ns, is_memop in below if is_memop == kind] for kind in (False, True)]
        assert found == [number for times in expected for number in (len(times), sum(times))]
    assert tree["instances"].sum() == profile.ranges(under)["instances"].sum()


@pytest.mark.parametrize("under", [None, "a"])
def test_the_tables_of_random_captures_have_their_brute_force_sums(under, read, tmp_path):
    for seed in range(200, 230):
        with read(random_capture(seed)) as profile:
            if under is not None and under not in profile.capture.ranges.names:
                with pytest.raises(TraceError, match="no range is named 'a'"):
                    profile.ranges(under)
            else:
                require_sums(profile, Rows.of_export(tmp_path / "capture.sqlite"), under)


@pytest.mark.parametrize("durations", [[7, 1_000_000_007, 13], [5, 5, 5], [60_000_000_000, 1, 2]])
def test_a_row_of_kernels_has_the_statistics_of_its_launches(durations, read):
    capture = Synthetic().range("step", 0, 100)
    for at, duration in enumerate(durations):
        capture.kernel("gemm", at=at, start=100 + sum(durations[:at]), duration=duration)
    with read(capture.memcpy(at=10, copy_kind=1, duration=1)) as profile:
        first, second = profile.kernels().to_dict("records")
    assert math.isclose(first.pop("std_ns"), statistics.stdev(durations))
    assert first == {
        "range": "step", "kernel": "gemm", "class": "gemm", "launches": len(durations), "total_ns": sum(durations),
        "mean_ns": sum(durations) / len(durations), "min_ns": min(durations), "max_ns": max(durations),
    }  # fmt: skip
    assert (second["kernel"], second["class"]) == ("[CUDA memcpy Host-to-Device]", "memcpy")
    assert math.isnan(second["std_ns"])


def test_nested_namesakes_count_once_and_replays_of_whole_graphs_count_as_kernels(read):
    capture = Synthetic().range("step", 0, 100).range("block", 10, 90).range("block", 20, 80)
    capture.kernel("gemm", at=30, duration=5).graph(3, at=15, duration=2).memcpy(at=40, duration=7)
    with read(capture.memset(at=5, duration=1)) as profile:
        assert profile.ranges().to_numpy().tolist() == [["block", 2, 2, 7, 1, 7], ["step", 1, 2, 7, 2, 8]]
        assert "graph" in profile.activity_classes
        assert sorted(profile.classes()["class"]) == ["gemm", "graph", "memcpy", "memset"]


def test_ranges_are_below_what_is_around_them_the_longest_first(read):
    capture = Synthetic().range("step", 0, 100).range("z", 10, 20).range("a", 30, 40).range("busy", 50, 60)
    with read(capture.kernel("k", at=55)) as profile:
        table = profile.ranges(tree=True)
        assert table[["range", "depth"]].to_numpy().tolist() == [
            ["step", 0], ["step > busy", 1], ["step > a", 1], ["step > z", 1],
        ]  # fmt: skip
        assert profile.ranges("busy", tree=True)["depth"].tolist() == [0]


def test_a_capture_without_kernels_has_tables_with_their_columns(read):
    with kernel_tables.read(CAPTURES / "tiny_2022.4.2.sqlite.gz") as profile:
        assert len(profile.kernels()) == len(profile.classes()) == len(profile.activities()) == 0
        assert profile.ranges("measure").set_index("range").loc["step"].tolist() == [3, 0, 0, 0, 0]
    with read(Synthetic()) as profile:
        assert profile.paths == [(), ("(launched before the capture)",)]
        for table in (profile.ranges(), profile.ranges(tree=True), profile.kernels(), profile.range_instances()):
            assert len(table) == 0 and len(table.columns) > 5
        assert profile.enclosing("step").tolist() == []


def test_time_that_is_lost_on_the_way_is_refused(read):
    with read(Synthetic().range("step", 0, 9).kernel("k", at=1).kernel("k", at=2)) as profile:
        assert profile.timed.all()
        profile.capture.activities.has_time = np.array([True, False])
        for table in ("ranges", "kernels", "classes"):
            with pytest.raises(NotConserved, match="2 launches and 10 ns, the capture 2 launches and 20 ns"):
                profile.table(table)


@pytest.mark.parametrize("name", ["graph_replayed_2025.3.2", "nccl_2025.3.1"])
def test_shuffled_rows_give_the_same_bytes(name, tmp_path):
    def written(path: Path) -> list[bytes]:
        commands = ("kernels", "classes", "ranges", "check", "diagnose", "communication")
        return [run_command(command, path, "--format", "csv").stdout for command in commands]

    path, chosen = tmp_path / "capture.sqlite", random.Random(3)
    path.write_bytes(gzip.decompress((CAPTURES / f"{name}.sqlite.gz").read_bytes()))
    expected = written(path)
    with closing(sqlite3.connect(path)) as database, database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = database.execute(f"SELECT * FROM {table}").fetchall()
            chosen.shuffle(rows)
            database.execute(f"DELETE FROM {table}")
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    assert written(path) == expected


def test_the_page_of_columns_has_those_of_the_commands_and_of_a_profile():
    page = (Path(__file__).parents[2] / "docs" / "capture-columns.md").read_text(encoding="utf-8")
    declared, table = {}, ""
    for first, column in re.findall(r"^\| (?:`(.+?)`)? \| `(\w+)` \|", page, re.MULTILINE):
        table = first or table
        declared.setdefault(table, []).append(column)
    capture = CAPTURES / "nccl_2025.3.1.sqlite.gz"
    optional = {"rank": "communication", "depth": "", "capture": ""}  # columns by the only command that has them always
    with kernel_tables.read(capture) as profile:
        frames = {"activities": profile.activities(), "range_instances": profile.range_instances()}
    for table, columns in declared.items():
        arguments = {"names": ["gemm"], "diff": [capture, capture]}.get(table.split()[0], [capture])
        header = frames.get(table)
        if header is None:
            header = run_command(*table.split(), *arguments).stdout.decode().splitlines()[0].split(",")
        wanted = [name for name in columns if name not in optional or optional[name] == table.split()[0]]
        assert (table, list(header)) == (table, wanted)


def test_a_file_that_is_no_capture_is_refused_in_one_line(tmp_path):
    (tmp_path / "notes.txt").write_text("no capture")
    for name in ("notes.txt", "missing.sqlite", "."):
        with pytest.raises(TraceError) as raised:
            kernel_tables.read(tmp_path / name)
        assert "\n" not in str(raised.value) and str(tmp_path / name) in str(raised.value)
