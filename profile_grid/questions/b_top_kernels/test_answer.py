"""The tables and sentences of (b), from made-up runs."""

from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.documents.summaries import summary_tables
from tests.profile_grid.made_up import GEMM, MUL, Kernel, Made, forward_kernels, grid, merged, training_kernels
from tests.profile_grid.made_up_answers import Said, after_forward, forward, rows, summaries


def test_top_kernels_are_counted_per_single_pass():
    # phase, range, name, class, launches, µs
    kernels = (Kernel("forward", "", GEMM, "gemm", 61, 3000.0), Kernel("forward", "", MUL, "elementwise", 24, 1000.0))
    table = summaries(Made(kernels=kernels, steps=15))["top_kernels"]
    forward = table[table["scope"] == "forward"]
    assert rows(forward, "rank", "kernel", "class", "gpu_time_ms", "invocations", "same_in_every_step", "share") == [
        (1, GEMM, "gemm", 3.0, 61.0, True, 0.75),
        (2, MUL, "elementwise", 1.0, 24.0, True, 0.25),
    ]


def test_a_kernel_that_one_step_lacks_is_averaged_over_all_steps_and_said_to_differ():
    tables = merged([Made(kernels=(Kernel("forward", "", GEMM, "gemm", 10, 900.0),), steps=3)])
    for name, column in (("kernels", "total_ns"), ("phases", "kernel_ns")):
        tables[name].loc[tables[name]["step"] == 2, column] = 0
    tables["kernels"] = tables["kernels"][tables["kernels"]["step"] < 2]
    top = summary_tables(tables, ["top_kernels"])["top_kernels"].iloc[0]
    assert top["gpu_time_ms"] == pytest.approx(0.6)
    assert top["invocations"] == pytest.approx(20 / 3)
    assert not top["same_in_every_step"]
    assert top["gpu_time_std_ms"] == pytest.approx(pd.Series([0.9, 0.9, 0.0]).std())


def test_the_top_kernel_of_training_is_compared_with_that_of_the_inference_run():
    inference = Made(kernels=forward_kernels())
    same = Made(mode="forward_backward", kernels=forward_kernels() + training_kernels("forward_backward"))
    other = Made(
        mode="train_step",
        kernels=forward_kernels() + training_kernels("train_step", matmul_us=10, elementwise_us=90000),
    )
    table = summaries(inference, same, other)["top_kernels"]
    compared = table[(table["scope"] == "all phases") & (table["rank"] == 1) & (table["mode"] != "forward")]
    assert rows(compared, "mode", "kernel", "same_as_forward") == [
        ("forward_backward", GEMM, True),
        ("train_step", MUL, False),
    ]


def test_the_same_top_kernel_everywhere():
    assert Said(grid())["b"] == (
        "The top kernel takes 51.2 % to 67.8 % of the forward pass (median 61.6 %): **sgemm 256×128 nn** in all"
        " 4 runs; the same kernel leads training in all 4 runs. The top kernel of the forward pass is launched"
        " 60 to 180 times, the same in every captured step. In forward + backward, the same kernel leads."
    )


def test_another_top_kernel_in_training():
    runs = [after_forward(run, matmul_us=100.0, elementwise_us=50000.0) for run in grid()]
    text = Said(runs)["b"]
    assert "; another kernel leads training in all 4 runs." in text
    assert "The top kernel of the training step is **elementwise mul**." in text


def test_another_top_kernel_in_some_of_the_grid():
    runs = [after_forward(run, elementwise_us=50000.0) if run.model == "small" else run for run in grid()]
    text = Said(runs)["b"]
    assert "the same kernel leads training in 2 of 4 runs." in text
    assert "In the training step, another kernel leads in 2 of 4 runs: **elementwise mul**." in text


def test_different_top_kernels_of_the_forward_pass_are_told_by_class():
    runs = grid(modes=("forward",))
    runs[0] = replace(runs[0], kernels=forward_kernels(10.0, 5000.0))
    assert ": gemm in 3 of 4 runs. The top kernel of the forward pass" in Said(runs)["b"]


def test_one_captured_step_cannot_tell_whether_steps_agree():
    assert (
        "The top kernel of the forward pass is launched 60 times, of the one captured step."
        in Said(forward(steps=1))["b"]
    )
