"""The tables and sentences of (a), from made-up runs."""

from dataclasses import replace

import pandas as pd
import pytest

from tests.profile_grid.made_up import (
    GEMM,
    Kernel,
    Made,
    forward_kernels,
    grid,
)
from tests.profile_grid.made_up_answers import Said, forward, summaries


def test_forward_time_sets_nvtx_gpu_and_python_side_by_side():
    kernels = (Kernel("forward", "", GEMM, "gemm", 100, 8000.0),)
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


def test_a_grid_that_matches_python_says_so_with_its_ratios():
    assert Said(grid())["a"].startswith(
        "Timed by Python without a profiler, one forward pass takes 4.03 ± 0.10 ms (small at context 128) to"
        " 16.64 ± 0.10 ms (large at context 512). The profiled one matches that within 5 % in all 4 configurations"
        " (× 1.01 to × 1.03)."
    )


def test_a_single_run_is_told_in_the_singular():
    assert Said(forward())["a"].startswith(
        "Timed by Python without a profiler, one forward pass takes 11.80 ± 0.10 ms (small at context 512). Under the"
        " profiler it takes 12.0010 ± 0.0010 ms, × 1.017 ± 0.009 of that: it matches within 5 %."
    )


def test_many_short_kernels_and_an_idle_gpu_are_called_launch_bound():
    text = Said(forward(kernels=forward_kernels(layers=100), step_wall_ms=20.0))["a"]
    assert "× 1.695 ± 0.014 of that: it does not match within 5 %." in text
    assert (
        "There no kernel runs during 51.0 % of the profiled step, and the 1,200 kernels of a forward pass take the CPU"
        " 8.33 µs each to launch and the GPU 8.17 µs to run: launch-bound, so what the profiler adds to every launch"
        " shows." in text
    )


def test_an_idle_gpu_whose_kernels_take_longer_than_their_launch_is_not_called_launch_bound():
    text = Said(forward(step_wall_ms=16.0))["a"]
    assert "though launching a kernel takes less (55.6 µs) than running it (68.1 µs): not launch-bound;" in text


def test_a_busy_gpu_is_not_called_launch_bound():
    text = Said(forward(step_wall_ms=10.0, unprofiled_ms=9.0))["a"]
    assert "kernels run during 98.0 % of the profiled step: not launch-bound" in text


def test_a_step_that_is_shorter_under_the_profiler_is_not_blamed_on_it():
    text = Said(forward(step_wall_ms=10.0, unprofiled_ms=12.0))["a"]
    assert "the profiled step is the shorter one, which no profiler causes" in text


def test_a_difference_within_the_scatter_of_the_steps_is_given_no_reason():
    text = Said(forward(step_wall_ms=13.0, unprofiled_ms=12.0, unprofiled_std_ms=3.0))["a"]
    assert "it does not match within 5 %. There the difference is no larger than 2 standard deviations" in text
    assert "bound" not in text


def test_some_that_match_and_some_that_do_not_are_told_apart():
    runs = grid(modes=("forward",))
    runs[0] = replace(runs[0], step_wall_ms=2 * runs[0].step_wall_ms)
    text = Said(runs)["a"]
    assert (
        "matches that within 5 % in 3 of 4 configurations; not in small at context 128, where it takes × 2.05" in text
    )


def test_a_range_that_covers_the_work_of_the_gpu_is_not_called_shorter_than_it():
    assert "shorter than the GPU's work" in Said(forward())["a"]
    assert "shorter than the GPU's work" not in Said(forward(step_wall_ms=20.0))["a"]
