"""Verdicts: only a spread that was measured decides, and GPU time only beyond two percent."""

import numpy as np
import pandas as pd
import pytest

from kernel_tables.verdict import fails, judge, judge_samples, sentence
from tests.workflow.small_tables import make_run, make_tables
from workflow.tables import judge_gpu_times, judge_wall_times

PAIR = pd.DataFrame({"before": ["base"], "after": ["other"]})


def judge_pair(before: tuple, after: tuple) -> pd.Series:
    """The verdict on two samples, each given as mean, relative spread and number."""
    times = pd.DataFrame([before, after], index=["base", "other"], columns=["mean", "spread", "n"])
    return judge(times.astype("float64"), PAIR, "process").iloc[0]


CASES = [
    ((10, 0.01, 5), (8, 0.01, 5), "faster"),
    ((10, 0.2, 5), (9, 0.2, 5), "cannot be told"),  # within the spread
    ((10, 0.01, 5), (1, None, 1), "cannot be told"),  # however large, no spread was measured
    ((10, 0.01, 5), (None, None, None), "cannot be told"),
    ((10, 0.0, 3), (10, 0.0, 3), "cannot be told"),
]


def test_a_difference_is_told_from_the_spread_between_samples_which_are_named():
    assert [judge_pair(before, after)["verdict"] for before, after, _ in CASES] == [verdict for *_, verdict in CASES]
    few, many = judge_pair((10, 0.05, 3), (5, 0.05, 3)), judge_pair((10, 0.05, 30), (5, 0.05, 20))
    assert few["ratio"] == 0.5 and few["low"] < many["low"] < 0.5 < many["high"] < few["high"]
    assert few["used"] == "3 processes each" and many["used"] == "30 and 20 processes"


def test_many_comparisons_need_more_evidence_than_one():
    times = pd.DataFrame({"mean": [10.0, 8.7, 10.0], "spread": 0.05, "n": 4.0}, index=["base", "other", "same"])
    many = judge(times, pd.DataFrame({"before": "base", "after": ["other", *["same"] * 40]}), "process")
    assert judge(times, PAIR, "process")["verdict"][0] == "faster" and set(many["verdict"]) == {"cannot be told"}


@pytest.mark.parametrize(("speed", "verdict"), [(1.015, "cannot be told"), (1.03, "faster"), (0.97, "slower")])
def test_gpu_time_is_judged_by_captured_steps_beyond_two_percent(speed, verdict):
    row = judge_gpu_times(make_tables(make_run("base"), make_run("other", speed))["phases"], PAIR).iloc[0]
    assert row["verdict"] == verdict and row["ratio"] == pytest.approx(1 / speed, rel=1e-4)
    assert row["before_ms"] == pytest.approx(1.001, rel=1e-4) and row["used"] == "3 captured steps each"


@pytest.mark.parametrize(("processes", "verdict"), [(1, "cannot be told"), (4, "faster")])
def test_wall_time_is_judged_by_processes_alone(processes, verdict):
    spread = {"processes": processes, "process_spread": 0.02}
    tables = make_tables(make_run("base", **spread), make_run("other", wall_ms=1.0, **spread))
    row = judge_wall_times(tables["timings"], PAIR).iloc[0]
    assert row["verdict"] == verdict and row["ratio"] == 0.25


def count_told(change: float, spread: float, comparisons: int = 400) -> tuple[float, float]:
    """The share of comparisons of six processes each that tell this change, and the median of `findable`."""
    random, rows = np.random.default_rng(0), []
    for _ in range(comparisons):
        samples = np.exp(random.normal(0, spread, 12)) * np.repeat([10, 10 * (1 + change)], 6)
        rows.append(judge_samples(pd.Series(samples, ["base"] * 6 + ["other"] * 6), PAIR, "process"))
    table = pd.concat(rows)
    return (table["verdict"] != "cannot be told").mean(), table["findable"].median()


def test_a_program_against_itself_is_told_at_most_once_in_fifty_and_five_percent_nearly_always():
    assert count_told(0, 0.03)[0] <= 0.02
    assert count_told(0.05, 0.015)[0] >= 0.95


def test_what_can_be_found_is_found_in_eight_of_ten_comparisons():
    findable = count_told(0, 0.02)[1]
    assert 0.04 < findable < 0.06 and count_told(findable, 0.02)[0] == pytest.approx(0.8, abs=0.1)
    assert count_told(0, 0.0001)[1] == 0.01  # no smaller difference decides


def test_a_verdict_fails_if_it_is_the_one_named_by_at_least_that_much():
    table = judge(pd.DataFrame({"mean": [10.0, 10.5], "spread": 0.002, "n": 6.0}, ["base", "other"]), PAIR, "process")
    assert sentence(table.iloc[0]) == "5.0 % slower (4.7 % to 5.3 %)"
    assert sentence(judge_pair((10, 0.02, 4), (9.5, 0.02, 4))) == "cannot be told, perhaps faster (1.7 % to 8.2 %)"
    texts = ("slower", "slower 2%", "slower 6 %", "changed 4.9%", "faster", "nothing")
    assert [text for text in texts if fails(table, text).any()] == ["slower", "slower 2%", "changed 4.9%"]
