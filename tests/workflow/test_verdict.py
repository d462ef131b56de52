"""Verdicts: only a spread that was measured decides, and GPU time only beyond two percent."""

import pandas as pd
import pytest

from tests.workflow.small_tables import make_run, make_tables
from workflow.verdict import compare_runs, find_pairs, judge, judge_gpu_times, judge_wall_times

PAIR = pd.DataFrame({"before": ["base"], "after": ["other"]})


def judge_pair(before: tuple, after: tuple, sample: str = "process", least: float = 0.0) -> pd.Series:
    """The verdict on two samples, each given as mean, relative spread and number."""
    times = pd.DataFrame([before, after], index=["base", "other"], columns=["mean", "spread", "n"])
    return judge(times.astype("float64"), PAIR, sample, least).iloc[0]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((10, 0.01, 5), (8, 0.01, 5), "faster"),
        ((8, 0.01, 5), (10, 0.01, 5), "slower"),
        ((10, 0.2, 5), (9, 0.2, 5), "cannot be told"),  # within the spread
        ((10, None, 1), (1, None, 1), "cannot be told"),  # however large, no spread was measured
        ((10, 0.01, 5), (1, None, 1), "cannot be told"),
        ((10, 0.01, 5), (None, None, None), "cannot be told"),
    ],
)
def test_a_difference_is_told_from_the_spread_between_samples(before, after, verdict):
    assert judge_pair(before, after)["verdict"] == verdict


def test_the_interval_holds_the_ratio_and_is_narrower_for_more_samples():
    few, many = judge_pair((10, 0.05, 3), (5, 0.05, 3)), judge_pair((10, 0.05, 30), (5, 0.05, 30))
    assert few["ratio"] == 0.5 and few["low"] < many["low"] < 0.5 < many["high"] < few["high"]
    assert few["low"] * few["high"] == pytest.approx(0.25)  # it is symmetric in logarithms


def test_equal_samples_without_any_spread_are_not_told_apart():
    assert judge_pair((10, 0.0, 3), (10, 0.0, 3))["verdict"] == "cannot be told"
    assert judge_pair((10, 0.0, 3), (9, 0.0, 3))["verdict"] == "faster"


def test_what_was_used_is_said():
    assert judge_pair((10, None, 1), (1, None, 1))["used"] == "1 process each"
    assert judge_pair((10, 0.1, 3), (1, 0.1, 3), "captured step")["used"] == "3 captured steps each"
    assert judge_pair((10, 0.1, 2), (1, 0.1, 3))["used"] == "2 and 3 processes"


def test_many_comparisons_need_more_evidence_than_one():
    times = pd.DataFrame({"mean": [10.0, 9.0, 10.0], "spread": 0.05, "n": 4.0}, index=["base", "other", "same"])
    alone = judge(times, PAIR, "process")
    many = judge(times, pd.DataFrame({"before": "base", "after": ["other", *["same"] * 40]}), "process")
    assert alone["verdict"][0] == "faster" and set(many["verdict"]) == {"cannot be told"}
    assert alone["p"][0] == many["p"][0]


@pytest.mark.parametrize(("speed", "verdict"), [(1.015, "cannot be told"), (1.03, "faster"), (0.97, "slower")])
def test_gpu_time_is_judged_by_captured_steps_beyond_two_percent(speed, verdict):
    tables = make_tables(make_run("base"), make_run("other", speed))
    row = judge_gpu_times(tables["phases"], PAIR).iloc[0]
    assert row["verdict"] == verdict and row["ratio"] == pytest.approx(1 / speed, rel=1e-4)
    assert row["before_ms"] == pytest.approx(1.001, rel=1e-4) and row["used"] == "3 captured steps each"


def test_wall_time_is_judged_by_processes_alone():
    one = make_tables(make_run("base"), make_run("other", wall_ms=1.0))
    assert judge_wall_times(one["timings"], PAIR)["verdict"][0] == "cannot be told"
    spread = {"processes": 4, "process_spread": 0.02}
    several = make_tables(make_run("base", **spread), make_run("other", wall_ms=1.0, **spread))
    row = judge_wall_times(several["timings"], PAIR).iloc[0]
    assert row["verdict"] == "faster" and row["ratio"] == 0.25 and row["used"] == "4 processes each"


def test_pairs_differ_in_one_dimension_alone():
    tables = make_tables(
        make_run("base"), make_run("low", precision="bf16"), make_run("long", context_length=256),
        make_run("both", precision="bf16", compile="on"), make_run("low_long", precision="bf16", context_length=256),
    )  # fmt: skip
    pairs = find_pairs(tables["runs"], "precision", "fp32")
    assert pairs.to_numpy().tolist() == [["base", "low"], ["long", "low_long"]]


def test_two_runs_are_compared_by_phase_in_gpu_time_and_without_a_profiler():
    tables = make_tables(
        make_run("base", mode="train_step"), make_run("low", 2.0, mode="train_step", precision="bf16", wall_ms=5.0)
    )
    rows = compare_runs(tables, "precision", "fp32").set_index("phase")
    assert list(rows.index) == ["step", "forward", "backward", "optimizer"] and set(rows["verdict"]) == {"faster"}
    assert rows["speed_up"].tolist() == pytest.approx([2.0] * 4) and set(rows["wall_verdict"]) == {"cannot be told"}
    assert rows["wall_speed_up"]["step"] == 0.8 and rows["base_gpu_time_ms"]["forward"] == pytest.approx(
        1.001, rel=1e-4
    )
    assert rows["matmul_speed_up"]["forward"] == pytest.approx(2.0) and pd.isna(rows["matmul_speed_up"]["optimizer"])
    assert rows["kernels"]["step"] == 24 and set(rows["run"]) == {"low"} and set(rows["base_run"]) == {"base"}
