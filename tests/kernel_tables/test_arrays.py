"""Numbering keys without gaps and grouping positions, against numpy's sorting functions."""

import numpy as np
import pytest

from kernel_tables.attribution.arrays import factorize, positions_by_group, positions_by_key


@pytest.mark.parametrize(
    "keys",
    [[], [7], [5, 5, 5], [3, 1, 2, 1], [-1, 4, -1], [1 << 48 | 444, 1 << 48 | 481, 1 << 48 | 444], [0, 1 << 40, -9]],
    ids=["none", "one", "all equal", "close together", "with a negative one", "global ids", "far apart"],
)
def test_compact_keys_are_the_distinct_ones_and_their_indices(keys):
    distinct, index = factorize(np.array(keys, np.int64))
    assert distinct.tolist() == sorted(set(keys))
    assert distinct[index].tolist() == keys


@pytest.mark.parametrize("count", [0, 1, 3, 200, 70_000], ids="{} groups".format)
def test_grouped_positions_are_those_of_each_group_and_negative_ones_are_of_none(count):
    groups = np.random.default_rng(0).integers(-1, count, 500).astype(np.int32)
    found = positions_by_group(groups, count)
    assert len(found) == count
    assert [group for group, positions in enumerate(found) for _ in positions] == sorted(groups[groups >= 0].tolist())
    for group in set(groups[groups >= 0].tolist()):
        assert found[group].tolist() == np.flatnonzero(groups == group).tolist()


def test_matched_positions_are_those_of_each_key_of_the_first_in_both():
    one, other = np.array([4, 9, 4, 2]), np.array([2, 4, 7])
    pairs = [(here.tolist(), there.tolist()) for here, there in positions_by_key(one, other)]
    assert pairs == [([3], [0]), ([0, 2], [1]), ([1], [])]
