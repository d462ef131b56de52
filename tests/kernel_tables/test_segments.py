"""Ranges that overlap without nesting, cut into segments; each case by its times, the segments below it."""

import numpy as np
import pytest

from kernel_tables.attribution.nesting import nesting_of, segments_that_nest


def cut(*ranges: tuple[int, int]) -> list[tuple[int, int, int]]:
    """(range, start, end) of each segment of these ranges, given in opening order."""
    found = segments_that_nest(np.array([start for start, _ in ranges]), np.array([end for _, end in ranges]))
    return list(zip(found.range.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True))


@pytest.mark.parametrize(
    "ranges",
    [[(0, 100), (10, 50), (60, 90)], [(0, 100), (0, 100)], [(0, 50), (50, 100)], [(0, 50), (10, 10)], [(5, 5)]],
    ids=["inside", "the same times", "one after the other", "of no duration", "alone"],
)
def test_ranges_that_nest_stay_whole(ranges):
    assert cut(*ranges) == [(number, start, end) for number, (start, end) in enumerate(ranges)]


def test_a_range_is_cut_where_an_earlier_one_ends_within_it():
    assert cut((0, 50), (20, 80)) == [(0, 0, 50), (1, 20, 50), (1, 50, 80)]


def test_what_lies_inside_is_cut_with_it():
    assert cut((0, 50), (20, 80), (40, 60)) == [(0, 0, 50), (1, 20, 50), (2, 40, 50), (1, 50, 80), (2, 50, 60)]


def test_a_range_is_cut_once_where_two_end_together():
    assert cut((0, 50), (10, 50), (20, 80)) == [(0, 0, 50), (1, 10, 50), (2, 20, 50), (2, 50, 80)]


def test_a_queue_of_ranges_is_cut_at_every_end():
    assert cut((0, 30), (10, 40), (20, 50)) == [
        (0, 0, 30), (1, 10, 30), (2, 20, 30), (1, 30, 40), (2, 30, 40), (2, 40, 50),
    ]  # fmt: skip


def test_ranges_left_open_cut_nothing_and_are_cut_once_each():
    steps = [span for step in range(50) for span in [(100 * step, 100 * step + 90), (100 * step + 10, 5000)]]
    assert len(cut(*steps)) == 150


@pytest.mark.parametrize("seed", range(20))
def test_the_pieces_of_any_ranges_nest_and_cover_them(seed):
    start_ns, duration_ns = np.random.default_rng(seed).integers(0, 60, (2, 40))
    order = np.lexsort((-start_ns - duration_ns, start_ns))
    start_ns, end_ns = start_ns[order], (start_ns + duration_ns)[order]
    segments = segments_that_nest(start_ns, end_ns)
    assert nesting_of(start_ns, end_ns) is None
    assert nesting_of(segments.start_ns, segments.end_ns) is not None
    for number, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        mine = segments.range == number
        assert [start, *segments.end_ns[mine].tolist()] == [*segments.start_ns[mine].tolist(), end]
