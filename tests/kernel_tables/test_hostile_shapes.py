"""Captures of a shape that nobody expects: thousands of threads, ranges that are never closed, staircases of ranges."""

from random import Random

import pytest

from kernel_tables.errors import ImpossibleCapture
from kernel_tables.trace import Trace
from tests.kernel_tables import brute_force
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
    with Trace(path) as trace:
        assert trace.classes()["launches"].tolist() == [1500]  # which asks for no range


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
