"""The tables and sentences of (a), from made-up runs."""

from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.tables.evidence import is_launch_bound
from tests.profile_grid.made_up import GEMM, Kernel, Made, forward_kernels, grid, merged
from tests.profile_grid.made_up_answers import Said, answered, forward, summaries, told_of
from tests.profile_grid.test_answers import line_of


def test_forward_time_sets_nvtx_gpu_and_python_side_by_side():
    kernels = (Kernel("forward", "", GEMM, "gemm", 100, 8000.0),)  # phase, range, name, class, launches, µs
    run = Made(kernels=kernels, step_wall_ms=10.0, unprofiled_ms=8.0, unprofiled_std_ms=0.4, steps=1)
    row = summaries(run)["forward_time"].iloc[0]
    assert row["step_wall_ms"] == 10.0
    assert row["forward_wall_ms"] == 5.0  # half of the step, the other half is `synchronize`
    assert row["forward_gpu_span_ms"] == row["forward_gpu_busy_ms"] == 8.0
    assert (row["forward_kernels"], row["mean_kernel_us"]) == (100, 80.0)
    assert row["idle_share"] == pytest.approx(0.2)
    assert row["overhead_ratio"] == 1.25
    assert not row["matches_python"]
    assert pd.isna(row["step_wall_std_ms"])  # one step has no spread


def test_the_spread_of_the_ratio_comes_from_both_spreads():
    run = Made(kernels=forward_kernels(), step_wall_ms=12.0, unprofiled_ms=10.0, unprofiled_std_ms=0.5)
    row = summaries(run)["forward_time"].iloc[0]
    assert row["overhead_ratio_std"] == pytest.approx(1.2 * 0.05, rel=1e-3)


@pytest.mark.parametrize(("wall_ms", "matches"), [(10.4, True), (10.6, False), (9.6, True), (9.4, False)])
def test_a_step_matches_python_within_five_percent_and_not_beyond(wall_ms, matches):
    run = Made(kernels=(), steps=1, step_wall_ms=wall_ms, unprofiled_ms=10.0)
    assert bool(summaries(run)["forward_time"]["matches_python"].iloc[0]) is matches


def test_without_kernels_the_wall_times_stay_and_the_gpu_figures_are_missing_not_zero():
    row = summaries(Made(kernels=(), step_wall_ms=12.0))["forward_time"].iloc[0]
    assert row["step_wall_ms"] == pytest.approx(12.0, rel=1e-3)
    assert row[["forward_gpu_span_ms", "forward_gpu_busy_ms", "forward_kernels", "idle_share"]].isna().all()


def test_a_run_out_of_memory_has_a_row_with_statuses_and_no_figures():
    status = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    row = summaries(Made(kernels=forward_kernels(), **status), Made(mode="train_step"))["forward_time"].iloc[0]
    assert row["timing_status"] == "out_of_memory"
    assert row[["unprofiled_step_ms", "step_wall_ms", "forward_gpu_busy_ms", "overhead_ratio"]].isna().all()


def test_a_grid_that_matches_python_says_in_how_many_runs():
    assert Said(grid())["a"].startswith(
        "A forward pass takes 4.03 to 16.6 ms (median 8.11 ms); under the profiler, the time differs by at most 5 %"
        " in all 4 runs."
    )


def test_a_single_run_has_its_time_and_its_ratio():
    assert Said(forward())["a"].startswith(
        "A forward pass takes 11.8 ms; under the profiler, it takes 1.02 times as long."
    )


def test_many_short_kernels_and_an_idle_gpu_are_called_launch_bound():
    text = Said(forward(kernels=forward_kernels(layers=100), step_wall_ms=20.0))["a"]
    assert (
        "The only run is launch-bound under the profiler: the GPU idles 51.0 % of the step, because"
        " launching a kernel takes 8.33 µs, longer than running it (8.17 µs)." in text
    )


def test_an_idle_gpu_whose_kernels_take_longer_than_their_launch_is_not_called_launch_bound():
    text = Said(forward(step_wall_ms=16.0))["a"]
    assert "No run is launch-bound under the profiler: the GPU idles 38.7 % of the step." in text


def test_a_busy_gpu_is_not_called_launch_bound():
    text = Said(forward(step_wall_ms=10.0, unprofiled_ms=9.9))["a"]
    assert "No run is launch-bound under the profiler: the GPU idles 2.0 % of the step." in text


@pytest.mark.parametrize(("idle", "launch_us", "bound"), [(0.15, 2.0, True), (0.149, 2.0, False), (0.5, 0.9, False)])
def test_launch_bound_is_the_line_of_the_diagnosis_and_launches_that_take_longer_than_kernels(idle, launch_us, bound):
    assert is_launch_bound(pd.Series([idle]), pd.Series([launch_us]), pd.Series([1.0])).tolist() == [bound]


def test_a_difference_that_two_processes_could_have_is_no_cost_of_the_profiler():
    text = Said(forward(step_wall_ms=16.0, unprofiled_ms=12.0))["a"]
    assert "In the only run, a step takes 1.33 times as long under the profiler; variation between processes" in text


def test_a_step_that_is_clearly_faster_under_the_profiler_is_not_said_to_be_slowed():
    slow, fast = (forward(step_wall_ms=ms, unprofiled_ms=12.0, processes=6, process_spread=0.001) for ms in (16.0, 9.0))
    text = Said([*slow, *(replace(run, context_length=128) for run in fast)])["a"]
    assert "The profiler slows small at context 512: a step takes 1.33 times as long." in text
    assert "Under the profiler, a step takes 0.750 times as long in small at context 128." in text


def test_the_table_marks_launch_bound_runs_and_differences_that_two_processes_could_have():
    runs = [
        *forward(step_wall_ms=16.0, unprofiled_ms=12.0),
        *(replace(run, context_length=128) for run in forward(kernels=forward_kernels(layers=100), step_wall_ms=20.0)),
    ]
    text = answered("a_forward_time", runs)
    below = text[text.index("within 5 %") :]
    assert "|       no ? |" in line_of(below, "small", "512") and "launch-bound" not in line_of(below, "small", "512")
    assert "51.0 %, launch-bound |" in line_of(below, "small", "128")


def test_a_busy_gpu_whose_profiled_step_is_far_longer_is_slowed_by_the_profiler_which_is_said_once():
    runs = grid(modes=("forward",))
    runs[0] = replace(runs[0], step_wall_ms=20.0, unprofiled_ms=9.9)
    text = Said(runs)["a"]
    assert "The profiler slows small at context 128: a step takes 2.02 times as long." in text
    text = Said(forward(step_wall_ms=20.0, unprofiled_ms=9.9))["a"]
    assert "it takes 2.02 times as long" in text and "slows" not in text


def test_some_that_match_and_some_that_do_not_are_counted():
    runs = grid(modes=("forward",))
    runs[0] = replace(runs[0], step_wall_ms=2 * runs[0].step_wall_ms)
    assert "differs by at most 5 % in 3 of 4 runs" in Said(runs)["a"]


def test_a_range_that_covers_the_work_of_the_gpu_is_not_called_shorter_than_it():
    shorter = "In the only run, the NVTX range `forward` is shorter than the GPU's busy time"
    assert shorter in Said(forward())["a"]
    assert shorter not in Said(forward(step_wall_ms=20.0))["a"]


def test_a_range_that_is_as_long_as_the_gpu_is_busy_within_its_scatter_is_not_called_shorter():
    tables = merged(forward(step_wall_ms=19.61))
    walls = tables["phases"]["phase"] == "forward"
    tables["phases"].loc[walls, "wall_ns"] += [-300_000, 0, 300_000]
    assert "is shorter" not in told_of("a_forward_time", tables)
