"""Verdicts of documents on made-up tables whose runs several processes timed: claims are rare where nothing differs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from profile_grid.stages.timing.tables import statistics_of_processes
from profile_grid.study.dimensions import BY_KEY, LEADING, PRECISION
from profile_grid.tables.evidence import FALSE_RATE, FASTER, UNCLEAR, error_of_ratio, ratio_verdicts, spreads
from profile_grid.tables.gains import counts_by_value
from profile_grid.tables.per_pass import Merged
from profile_grid.tables.ratios import times_with_base
from tests.profile_grid.made_up import forward_kernels, grid, merged
from tests.profile_grid.test_answers import rendered

STEPS = 3
DEFAULTS = {key: BY_KEY[key].default for key in LEADING if key in BY_KEY}
CELLS = [(1, 30), (20, 10), (6000, 1)]  # single comparisons by the hundred: test_evidence.py
EMPTY = {
    "phases": pd.DataFrame(columns=["run", "phase", "gpu_busy_ns"]),
    "runs": pd.DataFrame(columns=["run", "device"]),
}


def table(seconds: np.ndarray) -> pd.DataFrame:
    """The comparison of two precisions in cells of one phase; `seconds` by precision, cell, process and step."""
    rows = [
        DEFAULTS | {"run": f"{precision}_{cell}", "precision": precision, "context_length": cell, "phase": "step",
                    "model": "small", "mode": "forward", "batch_size": 4, **statistics_of_processes(times)}
        for precision, cells in zip(("fp32", "bf16"), seconds, strict=True)
        for cell, times in enumerate(cells)
    ]  # fmt: skip
    return times_with_base(Merged({"timings": pd.DataFrame(rows), **EMPTY}), PRECISION)


def times(random, cells: int, processes: int, spread: float, planted: int = 0) -> np.ndarray:
    """Made-up times whose processes differ by this spread; in the first `planted` cells, bf16 is ten percent faster."""
    of_process = np.exp(random.normal(0, spread, (2, cells, processes, 1)))
    seconds = of_process * random.normal(1, 0.01, (2, cells, processes, STEPS)) / 100
    seconds[1, :planted] /= 1.1
    return seconds


def allowed(trials: int) -> int:
    """So many of these trials may fail at RATE, with one chance in a thousand of more."""
    return int(stats.binom.ppf(0.999, trials, FALSE_RATE))


@pytest.mark.parametrize("processes", [2, 3, 6])
@pytest.mark.parametrize(("cells", "trials"), CELLS)
def test_a_table_of_the_same_work_has_a_claim_no_more_often_than_the_rate(cells, trials, processes):
    random = np.random.default_rng(cells + processes)
    made = [table(times(random, cells, processes, 0.03)) for _ in range(trials)]
    assert sum((rows["verdict"] != UNCLEAR).any() for rows in made) <= allowed(trials)
    assert all(rows["processes"].eq(processes).all() for rows in made)


@pytest.mark.parametrize(("cells", "planted"), [(1, 1), (20, 10), (6000, 600)])
def test_planted_differences_of_ten_percent_are_claimed_in_four_of_five_cells_and_few_others(cells, planted):
    random = np.random.default_rng(planted)
    made = [table(times(random, cells, 6, 0.02, planted)) for _ in range(max(1, 30 // cells))]
    claimed = sum((rows["verdict"][:planted] == FASTER).sum() for rows in made)
    assert claimed >= 0.8 * planted * len(made)
    assert sum((rows["verdict"][planted:] != UNCLEAR).sum() for rows in made) <= 2 * FALSE_RATE * claimed + 1


def test_sentences_count_the_claims_of_the_table_and_leave_out_missing_cells():
    seconds = times(np.random.default_rng(4), 20, 6, 0.01, planted=5)
    whole = table(seconds)
    (sentence,) = counts_by_value(whole, PRECISION)
    assert str(sentence).startswith("In bf16: faster in 5 of 20 runs (") and "unclear in 15 (" in sentence
    rows = [np.delete(side, 0, axis=0) for side in seconds]
    assert table(np.array(rows))["verdict"].tolist() == whole["verdict"].tolist()[1:]


def test_ties_are_no_difference():
    ties = table(np.full((2, 20, 6, STEPS), 0.01))
    assert set(ties["verdict"]) == {UNCLEAR}
    assert counts_by_value(ties, PRECISION) == [], "the lead says it"


def test_the_error_of_a_ratio_is_that_of_welchs_test_of_the_means_of_processes():
    first, second = np.log(np.random.default_rng(5).normal(10, 1, (2, 5)))
    sides = [first, second[:3]]
    frames = [spreads(pd.Series([len(side)]), pd.Series([side.std(ddof=1)]), pd.Series([0.0])) for side in sides]
    ratio = pd.Series([np.exp(sides[0].mean() - sides[1].mean())])
    row = ratio_verdicts(ratio, *error_of_ratio(*frames)).iloc[0]
    reference = stats.ttest_ind(*sides, equal_var=False)
    assert (row["p"], *np.log(row[["low", "high"]].astype("float64"))) == pytest.approx(
        (reference.pvalue, *reference.confidence_interval(0.95))
    )


def test_one_process_has_the_assumed_spread_and_several_the_measured_one():
    measured = spreads(pd.Series([1, 6, np.nan]), pd.Series([np.nan, 0.003, np.nan]), pd.Series([0.0, 0.5, 0.5]))
    assert measured["spread"].tolist() == [0.01, 0.003, 0.15] and measured["processes"].tolist() == [1, 6, 1]


@pytest.mark.parametrize(("processes", "text", "other"), [
    (1, "Each run was timed in one process, so this variation is assumed", "variation is measured"),
    (6, "Each run was timed in 6 processes, so this variation is measured;", "assumed"),
])  # fmt: skip
def test_a_document_says_once_whether_the_differences_between_processes_are_measured(processes, text, other):
    (run,) = grid(models=("small",), contexts=(512,), modes=("forward",))
    runs = [replace(run, processes=processes, process_spread=0.002)]
    runs += [replace(run, precision="bf16", unprofiled_ms=run.unprofiled_ms / 2) for run in runs]
    texts = rendered(runs)
    assert texts["answers"].count(text) == 1 and other not in texts["answers"]
    assert text not in texts["b_top_kernels"]


def test_a_measured_spread_makes_a_difference_a_claim_that_the_assumed_one_does_not():
    (run,) = grid(models=("small",), contexts=(128,), modes=("forward",))
    base = replace(run, kernels=forward_kernels(100.0, 10.0))  # the GPU waits
    verdicts = []
    for processes in (1, 6):
        runs = [replace(base, processes=processes, process_spread=0.01)]
        runs += [replace(run, precision="bf16", unprofiled_ms=run.unprofiled_ms / 1.1) for run in runs]
        verdicts += times_with_base(Merged(merged(runs)), PRECISION)["verdict"].tolist()
    assert verdicts == [UNCLEAR, FASTER]
