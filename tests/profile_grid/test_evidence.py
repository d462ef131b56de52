"""What may be called faster or slower: false claims are rare, planted differences found, spreads measured."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from profile_grid.tables.evidence import (
    FALSE_RATE,
    FASTER,
    GPU_BOUND_SPREAD,
    HOST_BOUND_SPREAD,
    SLOWER,
    UNCLEAR,
    adjusted_p_values,
    assumed_spread,
    needed_processes,
    pooled_time,
    ratio_verdicts,
    ratios_of_processes,
    typical_ms,
)

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-h200"
SIX, STEPS = 6, 5
SPREADS = (GPU_BOUND_SPREAD, HOST_BOUND_SPREAD)


def one_process(random, cells: int, spread: float, faster: float = 1.0, planted: int = 0) -> pd.Series:
    """The verdicts on a made-up table of one process a side: the first `planted` cells are so many times as fast."""
    base, own = random.normal(0, spread, (2, cells))
    true = np.where(np.arange(cells) < planted, faster, 1.0)
    error = pd.Series(np.full(cells, spread * 2**0.5))
    return ratio_verdicts(pd.Series(np.exp(base - own) * true), error)["verdict"]


def six_processes(random, cells: int, spread: float, faster: float = 1.0, planted: int = 0, noise=None) -> pd.Series:
    """The same of six processes a side, whose spread is measured; steps scatter by one percent more."""
    draw = noise or (lambda shape: random.normal(0, 1, shape))
    of_process = np.exp(spread * draw((2, cells, SIX, 1)))
    times = 10 * of_process * random.normal(1, 0.01, (2, cells, SIX, STEPS))
    times[1, :planted] /= faster
    return ratio_verdicts(*map(pd.Series, ratios_of_processes(*times)))["verdict"]


def allowed(trials: int) -> int:
    """So many of these trials may fail at RATE, with one chance in a thousand of more."""
    return int(stats.binom.ppf(0.999, trials, FALSE_RATE))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("cells", "trials"), [(1, 200), (20, 200), (6000, 3)])
def test_where_nothing_differs_a_table_of_any_size_has_a_claim_no_more_often_than_the_rate(cells, trials, spread):
    random = np.random.default_rng(cells)
    claims = [(one_process(random, cells, spread) != UNCLEAR).any() for _ in range(trials)]
    assert sum(claims) <= allowed(trials)


@pytest.mark.parametrize(("cells", "trials"), [(1, 200), (20, 40), (6000, 1)])
@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
def test_six_processes_a_side_of_the_same_work_are_called_different_no_more_often_than_the_rate(cells, trials, heavy):
    random = np.random.default_rng(cells)
    noise = (lambda shape: random.standard_t(3, shape)) if heavy else None
    claims = [(six_processes(random, cells, 0.03, noise=noise) != UNCLEAR).any() for _ in range(trials)]
    assert sum(claims) <= allowed(trials)


@pytest.mark.parametrize(("cells", "planted"), [(1, 1), (20, 1), (20, 10), (6000, 600)])
def test_ten_percent_are_claimed_in_four_of_five_cases_with_six_processes_a_side(cells, planted):
    random = np.random.default_rng(planted)
    trials = max(1, min(100, 2000 // cells))
    found = [six_processes(random, cells, 0.02, 1.1, planted) for _ in range(trials)]
    claimed = sum((verdicts[:planted] == FASTER).sum() for verdicts in found)
    assert claimed >= 0.8 * planted * trials
    assert sum((verdicts[planted:] != UNCLEAR).sum() for verdicts in found) <= 2 * FALSE_RATE * claimed + 1


def test_ten_percent_are_claimed_with_one_process_a_side_where_the_gpu_sets_the_pace_and_not_where_the_host_does():
    random = np.random.default_rng(5)
    claimed = (one_process(random, 500, GPU_BOUND_SPREAD, 1.1, 500) == FASTER).mean()
    assert claimed >= 0.8 and (one_process(random, 500, HOST_BOUND_SPREAD, 1.1, 500) == UNCLEAR).mean() > 0.9


def test_as_many_processes_as_are_said_to_be_needed_show_the_difference_in_four_of_five_cases():
    random = np.random.default_rng(6)
    needed, cells = needed_processes(0.15), 400
    before, after = np.exp(random.normal(0, 0.15, (2, cells, needed, 1)))
    p_values = ratio_verdicts(*map(pd.Series, ratios_of_processes(before, after / 1.1)))["p"]
    assert (p_values < FALSE_RATE).mean() == pytest.approx(0.8, abs=0.07)
    assert needed_processes(0.001) == SIX and needed_processes(0.15) < needed_processes(0.3)


def test_ties_are_no_difference_and_a_constant_one_is():
    same = np.full((2, SIX, STEPS), 10.0)
    assert ratio_verdicts(*map(pd.Series, ratios_of_processes(same, same)))["verdict"].tolist() == [UNCLEAR] * 2
    assert ratio_verdicts(*map(pd.Series, ratios_of_processes(same[:1], same[:1] * 1.02)))["verdict"].tolist() == [
        SLOWER
    ]


def test_missing_cells_have_no_verdict_and_no_part_in_the_others():
    ratio, error = pd.Series([np.nan, 1.08, np.nan]), pd.Series([0.02, 0.02, np.nan])
    both = ratio_verdicts(ratio, error)
    assert both["verdict"].tolist() == [None, FASTER, None]
    assert both["p"][1] == both["p_adjusted"][1]
    assert ratio_verdicts(ratio[:0], error[:0]).empty


def test_the_interval_excludes_one_where_a_single_ratio_is_told_and_holds_it_elsewhere():
    random = np.random.default_rng(7)
    for ratio in np.exp(random.normal(0, 0.05, 100)):
        row = ratio_verdicts(pd.Series([ratio]), pd.Series([0.02])).iloc[0]
        assert (row["low"] <= 1 <= row["high"]) == (row["verdict"] == UNCLEAR)


def test_adjusted_p_values_are_those_of_scipy_and_missing_ones_stay():
    p_values = np.random.default_rng(8).uniform(size=50)
    assert adjusted_p_values(p_values) == pytest.approx(stats.false_discovery_control(p_values))
    with_gap = np.insert(p_values, 7, np.nan)
    assert np.delete(adjusted_p_values(with_gap), 7) == pytest.approx(adjusted_p_values(p_values)) and np.isnan(
        adjusted_p_values(with_gap)[7]
    )


def test_the_ratio_of_two_sides_is_judged_as_by_scipys_welch_test():
    random = np.random.default_rng(9)
    before, after = random.normal(10, 1, (SIX, 1)), random.normal(11, 2, (8, 1))
    figures = ratios_of_processes(before[None], after[None])
    reference = stats.ttest_ind(np.log(before[:, 0]), np.log(after[:, 0]), equal_var=False)
    row = ratio_verdicts(*map(pd.Series, figures)).iloc[0]
    low, high = np.exp(reference.confidence_interval(0.95))
    assert (row["p"], row["low"], row["high"]) == pytest.approx((reference.pvalue, low, high))
    assert figures[2][0] == pytest.approx(reference.df)


def test_the_same_work_is_pooled_to_its_median_and_the_spread_between_its_processes():
    one = pd.Series([1.0])
    median, spread, number = pooled_time(
        pd.Series([100.0, 110.0, 90.0]), pd.Series([np.nan] * 3), pd.Series([np.nan] * 3)
    )
    assert (median, number) == (100.0, 3) and spread == pytest.approx(0.1, rel=0.01)
    assert np.isnan(pooled_time(pd.Series([100.0]), one, one * np.nan)[1])


def test_runs_of_several_processes_each_are_pooled_as_if_all_processes_were_of_one_run():
    times = np.exp(np.random.default_rng(10).normal(0, 0.05, (3, 4)))  # three runs of four processes
    logarithms = np.log(times)
    means, spreads_ = np.exp(logarithms.mean(axis=1)), logarithms.std(axis=1, ddof=1)
    _, spread, number = pooled_time(*map(pd.Series, (means, [4] * 3, spreads_)))
    assert number == 12 and spread == pytest.approx(logarithms.std(ddof=1))


def spreads_of_the_example() -> pd.DataFrame:
    """By run and side of the comparison of 60 runs with themselves: the relative standard deviation between processes,
    and the part of a step in which the GPU waits."""
    phases = pd.read_parquet(EXAMPLE / "tables" / "phases.parquet").query("phase == 'step'")
    busy_ms = phases.groupby("run")["gpu_busy_ns"].mean() / 1e6
    sides = []
    for side in ("before", "after"):
        folder = EXAMPLE / "comparison" / "same" / side
        first = pd.read_parquet(folder / "tables" / "steps.parquet").assign(process=1)
        steps = pd.concat([first, pd.read_parquet(folder / "processes" / "steps.parquet")]).query("phase == 'step'")
        means = steps.groupby(["run", "process"])["ms"].mean()
        spread = np.log(means).groupby("run").std()
        waiting = 1 - busy_ms.reindex(spread.index) / means.groupby("run").mean()
        sides.append(pd.DataFrame({"spread": spread, "waiting": waiting}))
    return pd.concat(sides)


def test_the_assumed_spreads_are_at_least_those_of_sixty_runs_in_seven_processes():
    measured = spreads_of_the_example()
    assert len(measured) == 120
    for assumed, rows in measured.groupby(assumed_spread(measured["waiting"])):
        typical = (rows["spread"] ** 2).mean() ** 0.5
        assert assumed / 5 < typical <= assumed
    assert set(assumed_spread(measured["waiting"])) == set(SPREADS)
    assert assumed_spread(pd.Series([np.nan])).tolist() == [HOST_BOUND_SPREAD]


def test_three_percent_more_in_one_cell_of_thirty_is_always_found():
    random = np.random.default_rng(2)
    for _ in range(5):
        assert six_processes(random, 30, 0.004, 1 / 1.03, 1).tolist()[0] == SLOWER


def test_intervals_hold_the_true_ratio_about_as_often_as_they_say():
    random = np.random.default_rng(3)
    of_process = np.exp(0.02 * random.normal(size=(2, 400, SIX, 1)))
    row = ratio_verdicts(*map(pd.Series, ratios_of_processes(of_process[0] * 1.02, of_process[1])))
    assert ((row["low"] <= 1.02) & (row["high"] >= 1.02)).mean() == pytest.approx(0.95, abs=0.03)


def test_the_time_of_a_side_is_the_geometric_mean_over_processes_of_the_median_step():
    assert typical_ms(np.array([[1.0, 2.0, 9.0], [8.0, 8.0, 100.0]])) == pytest.approx(4.0)


def test_a_verdict_allows_for_the_number_of_ratios():
    ratio, error = pd.Series([1.0, 1.2, 1.0]), pd.Series([0.09] * 3)
    assert ratio_verdicts(ratio[1:2], error[1:2])["verdict"].tolist() == [FASTER]
    assert ratio_verdicts(ratio, error)["verdict"].tolist() == [UNCLEAR] * 3
