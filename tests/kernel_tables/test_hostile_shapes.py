"""Captures of a shape that nobody expects: thousands of threads, ranges that are never closed, staircases of ranges."""

import sqlite3
from contextlib import closing
from random import Random

import pytest

from kernel_tables.errors import ImpossibleCapture
from kernel_tables.trace import Trace
from tests.kernel_tables import brute_force
from tests.kernel_tables.command import run_command
from tests.kernel_tables.synthetic import START_END, Synthetic


class WithoutLookups(Synthetic):
    """For thousands of rows: every kernel has a correlation id of its own."""

    def _called(self, correlation, process):
        return False


def refusal(path, way) -> str:
    with Trace(path) as trace, pytest.raises(ImpossibleCapture) as raised:
        way(trace)
    with Trace(path) as trace:
        assert [finding.code for finding in trace.check() if finding.severity == "error"] == ["too_many_open_ranges"]
    (finding,) = raised.value.findings
    assert finding.code == "too_many_open_ranges"
    return finding.message


def test_thousands_of_threads_one_after_the_other_are_no_matter(tmp_path):
    capture = WithoutLookups()
    for number in range(3000):
        capture.range(f"r{number % 7}", 10 * number, 10 * number + 9, thread=number + 1)
        capture.kernel("k", at=10 * number + 2, thread=number + 1, process=1 + number % 2)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert trace.ranges()["kernels"].sum() == 1500


def test_thousands_of_processes_are_no_matter(tmp_path):
    capture = WithoutLookups()
    for process in range(1, 3000):
        capture.range("r", 0, 50, process=process).kernel("k", at=10, process=process, correlation=7)
        capture.call(20, 8, process=process)  # a launch without its kernel
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert trace.ranges()["kernels"].tolist() == [2999]
        (finding,) = trace.check()
    assert finding.message.startswith("2999 launches have no kernel")


def test_a_thousand_threads_that_wait_for_each_other_are_told_apart(tmp_path):
    capture = WithoutLookups()
    for number in range(1000):
        capture.range("r", number, 10_000 - number, thread=number + 1)
    capture.kernel("inherits", at=5000, thread=5000).kernel("has its own", at=5000, thread=1000)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert [len(trace.paths[path]) for path in trace.activities()["path_id"]] == [1000, 1000]


@pytest.mark.parametrize("seed", range(5))
def test_many_threads_have_what_brute_force_gives_them(tmp_path, seed):
    random = Random(seed)
    capture = WithoutLookups()
    for number in range(200):
        start = random.randrange(300)
        capture.range(f"r{number}", start, start + random.randrange(120), thread=random.randrange(30), process=1)
        capture.kernel("k", at=random.randrange(400), thread=random.randrange(40), process=1)
    path = capture.write(tmp_path / "capture.sqlite")
    with Trace(path) as trace:
        assert [trace.paths[number] for number in trace.activities()["path_id"]] == brute_force.paths(path)


def test_ranges_that_are_pushed_and_never_popped_are_an_error_that_says_so(tmp_path):
    capture = WithoutLookups()
    for number in range(1500):
        capture.range("leak", number, None).kernel("k", at=number)
    path = capture.write(tmp_path / "capture.sqlite")
    assert "1,500 deep, more than 1,000: they are pushed and not popped" in refusal(path, Trace.kernels)
    assert "1,500 deep" in refusal(path, Trace.classes)


PAGE_BYTES = 4096


def lead_round(path, table: str, levels: int = 8) -> None:
    """Puts pages above the table's own, each of which leads 300 times to the next: 300 to the power of LEVELS rows."""
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (count,) = database.execute("PRAGMA page_count").fetchone()
    content = bytearray(path.read_bytes())
    own = slice(PAGE_BYTES * (root - 1), PAGE_BYTES * root)
    rows = content[own]
    content[own] = leading_to(count + 1)
    content += b"".join(leading_to(count + level) for level in range(2, levels + 1)) + rows
    content[28:32] = (len(content) // PAGE_BYTES).to_bytes(4, "big")
    path.write_bytes(content)


def leading_to(child: int, cells: int = 300) -> bytes:
    """An interior page of a table, all cells of which point to one page; its keys ascend."""
    keys = [child.to_bytes(4, "big") + bytes([0x84 + number // 128, number % 128]) for number in range(cells)]
    begin = PAGE_BYTES - 6 * cells
    pointers = b"".join((begin + 6 * number).to_bytes(2, "big") for number in range(cells))
    head = bytes([5, 0, 0]) + cells.to_bytes(2, "big") + begin.to_bytes(2, "big") + b"\0" + child.to_bytes(4, "big")
    return head + pointers + bytes(begin - 12 - len(pointers)) + b"".join(keys)


@pytest.mark.parametrize("table", ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "META_DATA_EXPORT"])
def test_a_table_whose_pages_lead_round_and_round_is_damaged_and_not_read_for_ever(tmp_path, table):
    capture = WithoutLookups()
    for number in range(20):
        capture.range("step", 10 * number, 10 * number + 5).kernel(f"k{number}", at=10 * number + 1)
    path = capture.write(tmp_path / "capture.sqlite")
    lead_round(path, table)
    for command in ("kernels", "check"):
        done = run_command(command, path)
        assert done.returncode == {"kernels": 2, "check": 1}[command]
        assert b"damaged" in done.stderr + done.stdout


def test_more_text_than_can_be_written_is_refused_before_it_is_made(tmp_path):
    capture = WithoutLookups()
    for number in range(300):
        capture.range(f"{'x' * 20_000}{number}", number, 1000 - number).kernel("k", at=number)
    path = capture.write(tmp_path / "capture.sqlite")
    assert "GB of text in all" in refusal(path, Trace.kernels)


def test_rows_that_repeat_long_names_are_refused_before_they_are_made(tmp_path):
    capture = WithoutLookups().range("x" * 1_000_000, 0, 10_000)
    for number in range(500):
        capture.kernel(f"k{number}", at=number)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert trace.ranges()["kernels"].tolist() == [500]
        with pytest.raises(ImpossibleCapture, match=r"0\.5 GB of text in all, more than 0\.4"):
            trace.kernels()


def test_a_thousand_ranges_deep_is_not_too_deep(tmp_path):
    capture = WithoutLookups().range("outermost", 0, 5000)
    for number in range(998):
        capture.range(f"r{number}", number + 1, 4000 - number)
    with Trace(capture.kernel("k", at=2000).write(tmp_path / "capture.sqlite")) as trace:
        assert len(trace.paths[trace.activities()["path_id"][0]]) == 999


def test_ranges_that_all_overlap_without_nesting_are_refused_before_they_fill_the_memory(tmp_path):
    capture = WithoutLookups().kernel("k", at=10)
    for number in range(3000):
        capture.range("stair", number, number + 3000, kind=START_END)
    assert "deep, more than 1,000" in refusal(capture.write(tmp_path / "capture.sqlite"), Trace.ranges)
