"""Interval arithmetic against sets of single nanoseconds."""

import numpy as np

from kernel_tables.intervals import covered_ns, difference, gaps, intersection, union, unions


def drawn(random) -> tuple[np.ndarray, np.ndarray]:
    start = random.integers(0, 40, random.integers(0, 9))
    return start, np.minimum(start + random.integers(0, 8, len(start)), 40)


def moments(start, end) -> set[int]:
    return {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}


def moments_of(intervals) -> set[int]:
    """The nanoseconds of intervals that are ascending and do not touch."""
    assert (intervals.end_ns > intervals.start_ns).all()
    assert (intervals.start_ns[1:] > intervals.end_ns[:-1]).all()
    return moments(intervals.start_ns, intervals.end_ns)


def test_every_operation_is_that_of_sets_of_nanoseconds():
    for seed in range(300):
        random = np.random.default_rng(seed)
        a, b, c = drawn(random), drawn(random), drawn(random)
        one, other, third = union(*a), union(*b), union(*c)
        in_a, in_b, in_c = moments(*a), moments(*b), moments(*c)
        assert moments_of(one) == in_a and one.total_ns == len(in_a)
        assert moments_of(intersection(one, other, third)) == in_a & in_b & in_c
        assert moments_of(difference(one, other, third)) == in_a - in_b - in_c
        assert moments_of(gaps(one, 5, 30)) == set(range(5, 30)) - in_a
        long, of_all = gaps(one, 5, 30, least_ns=4), gaps(one, 5, 30)
        assert long.start_ns.tolist() == of_all.start_ns[of_all.lengths_ns >= 4].tolist()
        in_each = [len(in_a & set(range(s, e))) for s, e in zip(b[0].tolist(), b[1].tolist(), strict=True)]
        assert covered_ns(one, *b).tolist() == in_each


def test_unions_of_groups_are_the_union_of_each():
    for seed in range(200):
        random = np.random.default_rng(seed)
        start, end = drawn(random)
        group = random.integers(0, 3, len(start)).astype(np.int8)
        found, of_group = unions(start, end, group)
        for number in range(3):
            own, wanted = of_group == number, union(start[group == number], end[group == number])
            assert found.start_ns[own].tolist() == wanted.start_ns.tolist()
            assert found.end_ns[own].tolist() == wanted.end_ns.tolist()
