"""The rows of the figures of (a), held against loops over the tables."""

import statistics
from collections import defaultdict

import pytest

from profile_grid.questions.a_forward_time.figure import (
    DRAWN_PHASES,
    MIN_DRAWN_PERCENT,
    draw_launch_bound,
    mean_steps,
    phase_times,
)
from tests.profile_grid.made_up_grid import FOUR_WAYS, TWO_MODELS, made_up_tables, rows_of


@pytest.mark.parametrize("grid", [TWO_MODELS, FOUR_WAYS], ids=["two models", "four dimensions more"])
def test_phase_times_are_those_of_the_training_steps_with_mean_and_spread(grid):
    tables = made_up_tables(**grid)
    spans, timed = defaultdict(list), {}
    for row in rows_of(tables["phases"]):
        spans[row["run"], row["phase"]].append(row["gpu_span_ns"] / 1e6)
    for row in rows_of(tables["timings"]):
        timed[row["run"], row["phase"]] = (row["mean_ms"], row["std_ms"])
    times = phase_times(tables["runs"], tables["timings"], tables["phases"])
    expected = {run for run in tables["runs"]["run"] if "train_step" in run}
    assert sorted(zip(times["run"], times["phase"], strict=True)) == sorted(
        (run, phase) for run in expected for phase in DRAWN_PHASES
    )
    for row in rows_of(times):
        run_and_phase = row["run"], row["phase"]
        assert (row["mean_ms"], row["std_ms"]) == timed[run_and_phase]
        assert row["profiled_ms"] == pytest.approx(statistics.mean(spans[run_and_phase]))
        assert row["profiled_std_ms"] == pytest.approx(statistics.stdev(spans[run_and_phase]))


def test_where_a_phase_has_no_kernels_its_profiled_time_is_the_wall_time_of_its_range():
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward",))
    phases = tables["phases"].assign(kernels=0, wall_ns=7_000_000)
    times = phase_times(tables["runs"], tables["timings"], phases)
    assert times["profiled_ms"].tolist() == [7.0]


def test_the_busy_share_is_busy_time_over_wall_time_of_each_run():
    tables = made_up_tables(**FOUR_WAYS)
    busy = {row["run"]: row for row in rows_of(mean_steps(tables["runs"], tables["phases"]))}
    assert set(busy) == set(tables["runs"]["run"])
    for run, row in busy.items():
        steps = [phase for phase in rows_of(tables["phases"]) if phase["run"] == run and phase["phase"] == "step"]
        sums = {name: sum(step[name] for step in steps) for name in ("wall_ns", "gpu_busy_ns", "kernel_ns", "kernels")}
        assert row["wall_ms"] == pytest.approx(sums["wall_ns"] / len(steps) / 1e6)
        assert row["busy_share"] == pytest.approx(sums["gpu_busy_ns"] / sums["wall_ns"])
        assert row["kernel_us"] == pytest.approx(sums["kernel_ns"] / sums["kernels"] / 1e3)


def test_a_run_that_is_hardly_idle_is_drawn_at_the_least_and_a_note_says_so():
    tables = made_up_tables(**FOUR_WAYS)
    said = f"Less than {MIN_DRAWN_PERCENT} % is drawn as {MIN_DRAWN_PERCENT} %."
    assert said not in draw_launch_bound(tables).notes
    phases = tables["phases"]
    busy = phases.assign(gpu_busy_ns=phases["gpu_busy_ns"].where(phases["run"] != phases["run"][0], phases["wall_ns"]))
    assert said in draw_launch_bound(tables | {"phases": busy}).notes
