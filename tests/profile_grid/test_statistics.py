"""The statistics of a comparison against what is written out, and at their stated rates."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from profile_grid.comparing.statistics import RATE, adjusted, fewest_for_one, median_ms, p_value, ratio_interval

CELLS, PROCESSES, STEPS = 30, 8, 10


def simulated(random, slower: float = 1.0) -> np.ndarray:
    """A side of one cell: processes scatter by half a percent, their steps by one."""
    of_process = random.normal(1, 0.005, (PROCESSES, 1))
    return 10 * slower * of_process * random.normal(1, 0.01, (PROCESSES, STEPS))


def p_by_counting(one: np.ndarray, other: np.ndarray) -> float:
    """The share of all ways to split the values that differ at least as much as this one, by how often one is less."""
    values = np.concatenate([one, other])

    def wins(chosen):
        others = [i for i in range(len(values)) if i not in chosen]
        return sum(values[i] > values[j] for i in chosen for j in others)

    middle = len(one) * len(other) / 2
    observed = abs(wins(range(len(one))) - middle)
    splits = list(combinations(range(len(values)), len(one)))
    return sum(abs(wins(split) - middle) >= observed for split in splits) / len(splits)


@pytest.mark.parametrize("seed", range(3))
def test_the_p_value_is_the_share_of_splits_that_differ_as_much(seed):
    random = np.random.default_rng(seed)
    before, after = random.normal(10, 1, (5, 3)), random.normal(11, 1, (4, 3))
    assert p_value(before, after) == pytest.approx(p_by_counting(np.median(before, 1), np.median(after, 1)))


def test_three_processes_against_three_can_never_be_told_apart():
    assert p_value(np.ones((3, 2)) + np.arange(3)[:, None], 100 + np.ones((3, 2)) * np.arange(3)[:, None]) >= 0.1


def test_adjusted_p_values_are_those_of_benjamini_and_hochberg_written_out():
    ascending = [0.01, 0.03, 0.04, 0.5]
    expected = [min(p * 4 / rank for rank, p in enumerate(ascending, start=1) if rank >= own) for own in (1, 2, 3, 4)]
    assert adjusted(np.array(ascending)).tolist() == pytest.approx(expected)
    assert adjusted(np.array(ascending[::-1])).tolist() == pytest.approx(expected[::-1])
    assert adjusted(np.empty(0)).tolist() == []


def found_cells(random, slower: dict[int, float]) -> set[int]:
    sides = [(simulated(random), simulated(random, slower.get(cell, 1.0))) for cell in range(CELLS)]
    return set(np.flatnonzero(adjusted(np.array([p_value(*side) for side in sides])) < RATE).tolist())


def test_comparing_a_program_with_itself_finds_something_no_more_often_than_the_stated_rate():
    random, trials = np.random.default_rng(1), 20
    finding = sum(bool(found_cells(random, {})) for _ in range(trials))
    assert finding <= stats.binom.ppf(0.999, trials, RATE)


def test_three_percent_more_in_one_cell_of_many_is_always_found_and_little_else():
    random, trials = np.random.default_rng(2), 10
    found = [found_cells(random, {17: 1.03}) for _ in range(trials)]
    assert all(17 in cells for cells in found)
    assert sum(len(cells) - 1 for cells in found) <= stats.binom.ppf(0.999, trials, 2 * RATE)


def test_three_percent_more_lies_in_its_interval_and_none_does_not():
    low, high = ratio_interval(simulated(np.random.default_rng(5)), simulated(np.random.default_rng(6), 1.03))
    assert 1.01 < low < 1.03 < high < 1.05


def test_intervals_hold_the_true_ratio_about_as_often_as_they_say():
    random = np.random.default_rng(3)
    held = 0
    for _ in range(100):
        low, high = ratio_interval(simulated(random), simulated(random, 1.02), resamples=300)
        held += low <= 1.02 <= high
    assert held >= 90


def test_the_time_of_a_side_is_the_median_over_processes_of_the_median_step():
    assert median_ms(np.array([[1.0, 2.0, 9.0], [4.0, 4.0, 4.0], [100.0, 5.0, 6.0]])) == 4.0


def test_the_interval_is_that_of_scipys_bootstrap_where_a_process_has_one_step():
    random = np.random.default_rng(3)
    before, after = random.normal(100, 2, (2, 40, 1))
    reference = stats.bootstrap(
        (before[:, 0], after[:, 0]), lambda x, y, axis: np.median(y, axis=axis) / np.median(x, axis=axis),
        n_resamples=20_000, method="percentile", random_state=random,
    )  # fmt: skip
    assert ratio_interval(before, after, 20_000) == pytest.approx(tuple(reference.confidence_interval), abs=5e-4)


@pytest.mark.parametrize(("cells", "processes"), [(1, 6), (23, 6), (24, 7), (60, 7), (100, 8)])
def test_so_many_processes_tell_one_cell_of_many_and_one_fewer_does_not(cells, processes):
    def smallest(count: int) -> float:
        apart = np.arange(count)[:, None] + np.array([0.0, 0.5])
        return adjusted(np.array([p_value(apart, apart + 1000), *[1.0] * (cells - 1)]))[0]

    assert fewest_for_one(cells) == processes and smallest(processes) < RATE
    assert processes == 6 or smallest(processes - 1) >= RATE
