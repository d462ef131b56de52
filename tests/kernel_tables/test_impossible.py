"""Captures that cannot be: no table is made of them, and `check` says why, by a code."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kernel_tables.errors import ImpossibleCapture
from kernel_tables.trace import Trace
from kernel_tables.views.perfetto import write_timeline
from tests.kernel_tables.synthetic import Synthetic, changed

CAPTURES = Path(__file__).parent.parent / "captures"
KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
LARGEST = 2**63 - 1


def whole() -> Synthetic:
    """A capture of 1 µs that lacks nothing: two steps of two kernels, one registered name, one copy."""
    capture = Synthetic().range("measure", 0, 900).range("registered", 5, 80, registered=True).lasting(0, 1000)
    for step in (0, 400):
        capture.range("step", step + 10, step + 300).kernel("gemm", at=step + 20).kernel("softmax", at=step + 30)
    return capture.memcpy(at=350)


@pytest.fixture
def path(tmp_path) -> Path:
    return whole().write(tmp_path / "capture.sqlite")


def codes(path: Path) -> list[str]:
    """The codes of the errors that `check` finds."""
    with Trace(path) as trace:
        found = trace.check()
    assert all(finding.severity == "error" and "\n" not in finding.message for finding in found)
    return [finding.code for finding in found]


def refusals(path: Path) -> set[str]:
    """The first code with which each way to get figures is refused."""
    ways = {
        "activities": Trace.activities, "range_instances": Trace.range_instances, "ranges": Trace.ranges,
        "kernels": Trace.kernels, "classes": Trace.classes,
        "timeline": lambda trace: write_timeline([trace], path.with_suffix(".json"), None),
    }  # fmt: skip
    refused = set()
    for way in ways.values():
        with Trace(path) as trace, pytest.raises(ImpossibleCapture) as raised:
            way(trace)
        assert str(raised.value).startswith(f"{path}: ") and "\n" not in str(raised.value)
        refused.add(raised.value.findings[0].code)
    return refused


def test_a_whole_capture_is_complete_and_gives_figures(path):
    assert codes(path) == []
    with Trace(path) as trace:
        assert trace.classes()["total_ns"].sum() == 50


@pytest.mark.parametrize("table", [KERNEL, NVTX, "CUPTI_ACTIVITY_KIND_MEMCPY"])
@pytest.mark.parametrize(
    ("code", "times"),
    [
        ("ends_before_start", 'start = "end" + 1'),
        ("no_time", "start = NULL"),
        ("negative_time", "start = -5"),
        ("negative_time", '"end" = -1'),
        ("outside_capture", f'start = {LARGEST}, "end" = {LARGEST}'),
        ("outside_capture", f'"end" = {LARGEST}'),
        ("outside_capture", '"end" = 1001'),
        ("wrong_type", "start = 'soon'"),
        ("wrong_type", "start = 1.5"),
        ("wrong_type", "start = x'00'"),
    ],
)
def test_a_time_that_cannot_be_is_an_error_and_gives_no_figure(path, table, code, times):
    one_row = f"UPDATE {table} SET {times} WHERE rowid = (SELECT max(rowid) FROM {table})"
    changed(path, one_row)
    assert set(codes(path)) == {code}
    assert refusals(path) == {code}


@pytest.mark.parametrize("table", [KERNEL, "CUPTI_ACTIVITY_KIND_MEMCPY"])
def test_an_activity_without_an_end_is_an_error(path, table):
    changed(path, f'UPDATE {table} SET "end" = NULL')
    assert codes(path) == ["no_time"]
    assert refusals(path) == {"no_time"}


def test_all_that_cannot_be_is_told_at_once(path):
    changed(path, f'UPDATE {KERNEL} SET "end" = start - 1', f"UPDATE {NVTX} SET start = -1 WHERE text = 'step'")
    assert codes(path) == ["ends_before_start", "negative_time"]
    with Trace(path) as trace, pytest.raises(ImpossibleCapture, match=r"4 rows of .* \(`check` lists 1 more\)$"):
        trace.kernels()


def test_a_row_longer_than_the_capture_is_an_error(path):
    changed(path, "UPDATE ANALYSIS_DETAILS SET startTime = 900, duration = 100")
    assert codes(path) == ["longer_than_capture"]
    assert refusals(path) == {"longer_than_capture"}


def test_bounds_that_cannot_be_are_an_error(path):
    changed(path, "UPDATE ANALYSIS_DETAILS SET stopTime = -1")
    assert codes(path) == ["impossible_bounds"]
    assert refusals(path) == {"impossible_bounds"}


def test_without_bounds_of_its_own_a_capture_may_last_146_years(tmp_path):
    path = whole().write(tmp_path / "capture.sqlite", lacking=("ANALYSIS_DETAILS",))
    changed(path, f'UPDATE {KERNEL} SET start = {2**60}, "end" = {2**60 + 7}')
    assert "outside_capture" not in codes_of_any_severity(path)
    changed(path, f'UPDATE {KERNEL} SET "end" = {2**62 + 1} WHERE rowid = 1')
    assert codes(path) == ["outside_capture"]


def codes_of_any_severity(path: Path) -> list[str]:
    with Trace(path) as trace:
        return [finding.code for finding in trace.check()]


def test_times_whose_sum_overflows_are_an_error(tmp_path):
    path = whole().write(tmp_path / "capture.sqlite", lacking=("ANALYSIS_DETAILS",))
    changed(path, f'UPDATE {KERNEL} SET start = 0, "end" = {2**61}')
    assert codes(path) == ["times_overflow"]
    assert refusals(path) == {"times_overflow"}


def test_calls_that_end_before_they_start_are_an_error_and_no_timeline(path):
    changed(path, f'UPDATE {RUNTIME} SET "end" = start - 1 WHERE rowid = 1')
    assert codes(path) == ["ends_before_start"]
    with Trace(path) as trace, pytest.raises(ImpossibleCapture):
        write_timeline([trace], path.with_suffix(".json"), None)


def test_a_call_that_ends_after_the_capture_does_not_lengthen_ranges_left_open(path):
    changed(path, f'UPDATE {RUNTIME} SET "end" = {LARGEST}', f"UPDATE {NVTX} SET \"end\" = NULL WHERE text = 'measure'")
    assert codes(path) == ["outside_capture"]
    with Trace(path) as trace, pytest.raises(ImpossibleCapture):
        trace.range_instances()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE StringIds",
        "DELETE FROM StringIds",
        "UPDATE StringIds SET value = NULL",
        "DELETE FROM StringIds WHERE value = 'gemm'",
    ],
)
def test_kernels_without_names_are_an_error(path, statement):
    changed(path, statement)
    assert "kernels_without_names" in codes_of_any_severity(path)
    with Trace(path) as trace, pytest.raises(ImpossibleCapture, match="names of kernels are not among its strings"):
        trace.classes()


def test_ranges_whose_registered_name_is_lost_are_an_error(path):
    changed(path, "DELETE FROM StringIds WHERE value = 'registered'")
    assert codes(path) == ["ranges_without_names"]
    with Trace(path) as trace, pytest.raises(ImpossibleCapture, match="names of ranges are not among its strings"):
        trace.ranges()


def test_calls_without_names_are_a_warning_since_lost_launches_are_known_by_them(path):
    changed(path, "DELETE FROM StringIds WHERE value LIKE 'cuda%'")
    with Trace(path) as trace:
        assert [(finding.severity, finding.code) for finding in trace.check()] == [("warning", "calls_without_names")]


def content_of_a_real_capture() -> bytearray:
    return bytearray(gzip.decompress((CAPTURES / "tiny_2025.3.1.sqlite.gz").read_bytes()))


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9, 0.99])
def test_a_tail_of_zeros_is_an_error_and_gives_no_figure(tmp_path, kept):
    content = content_of_a_real_capture()
    begin = int(kept * len(content)) // 100 * 100 + 37  # within a page, which keeps its head
    content[begin:] = bytes(len(content) - begin)
    path = tmp_path / "capture.sqlite"
    path.write_bytes(content)
    assert codes_of_a_file(path) == ["damaged_file"]
    assert refusals_of_a_file(path) == {"damaged_file"}


def test_two_pages_in_each_others_place_are_an_error_and_give_no_figure(tmp_path):
    content = content_of_a_real_capture()
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(bytes(content))
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (KERNEL,)).fetchone()
    first, second = (int.from_bytes(content[4096 * (root - 1) + 12 + at :][:2], "big") for at in (0, 2))
    at = [4096 * (root - 1) + cell for cell in (first, second)]
    content[at[0] : at[0] + 4], content[at[1] : at[1] + 4] = content[at[1] : at[1] + 4], content[at[0] : at[0] + 4]
    path = tmp_path / "capture.sqlite"
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as database:  # reading alone does not notice
        assert database.execute(f"SELECT count(*) FROM {KERNEL}").fetchone() == (3756,)
    assert codes_of_a_file(path) == ["damaged_file"]
    assert refusals_of_a_file(path) == {"damaged_file"}


def codes_of_a_file(path: Path) -> list[str]:
    """What `check` finds, also where the file is too damaged to be opened."""
    try:
        return codes(path)
    except ImpossibleCapture as error:
        return [finding.code for finding in error.findings]


def refusals_of_a_file(path: Path) -> set[str]:
    try:
        return refusals(path)
    except ImpossibleCapture as error:
        return {error.findings[0].code}
