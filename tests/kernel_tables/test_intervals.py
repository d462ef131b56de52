"""Interval arithmetic against sets of single nanoseconds."""

import numpy as np
import pytest

from kernel_tables.intervals import (
    covered_ns,
    difference,
    gaps,
    intersection,
    union,
    unions,
)

LENGTH = 40


def drawn(random) -> tuple[np.ndarray, np.ndarray]:
    start = random.integers(0, LENGTH, random.integers(0, 9))
    return start, np.minimum(start + random.integers(0, 8, len(start)), LENGTH)


def moments(start, end) -> set[int]:
    return {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}


def of(intervals) -> set[int]:
    """The nanoseconds of intervals that are ascending and do not touch."""
    assert (intervals.end_ns > intervals.start_ns).all()
    assert (intervals.start_ns[1:] > intervals.end_ns[:-1]).all()
    return moments(intervals.start_ns, intervals.end_ns)


@pytest.mark.parametrize("seed", range(200))
def test_every_operation_is_that_of_sets_of_nanoseconds(seed):
    random = np.random.default_rng(seed)
    a, b, c = drawn(random), drawn(random), drawn(random)
    one, other, third = union(*a), union(*b), union(*c)
    in_a, in_b, in_c = moments(*a), moments(*b), moments(*c)
    assert of(one) == in_a
    assert one.total_ns == len(in_a)
    assert of(intersection(one, other, third)) == in_a & in_b & in_c
    assert of(difference(one, other, third)) == in_a - in_b - in_c
    assert of(gaps(one, 5, 30)) == set(range(5, 30)) - in_a
    long = [(s, e) for s, e in zip(*vars(gaps(one, 5, 30)).values(), strict=True) if e - s >= 4]
    assert list(zip(*vars(gaps(one, 5, 30, 4)).values(), strict=True)) == long
    in_b = [len(in_a & set(range(s, e))) for s, e in zip(b[0].tolist(), b[1].tolist(), strict=True)]
    assert covered_ns(one, *b).tolist() == in_b
    assert [covered_ns(one, *span) for span in zip(b[0].tolist(), b[1].tolist(), strict=True)] == in_b


def test_what_is_covered_and_the_gaps_are_the_whole_window():
    one = union(np.array([3, 10]), np.array([5, 12]))
    assert one.total_ns + gaps(one, 0, 20).total_ns == 20
    assert gaps(union(np.array([0]), np.array([9])), 2, 7).total_ns == 0


@pytest.mark.parametrize("seed", range(100))
def test_unions_of_groups_are_the_union_of_each(seed):
    random = np.random.default_rng(seed)
    start, end = drawn(random)
    group = random.integers(0, 3, len(start))
    found, of_group = unions(start, end, group)
    for number in range(3):
        own, wanted = of_group == number, union(start[group == number], end[group == number])
        assert found.start_ns[own].tolist() == wanted.start_ns.tolist()
        assert found.end_ns[own].tolist() == wanted.end_ns.tolist()
