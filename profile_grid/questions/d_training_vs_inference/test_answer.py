"""The tables and sentences of (d), from made-up runs."""

from tests.profile_grid.made_up import GEMM, NORM, SDPA, Kernel, Made, forward_kernels, grid
from tests.profile_grid.made_up_answers import Said, after_forward, forward, rows, summaries


def test_class_shares_sum_to_one_in_every_phase_and_over_all_phases():
    table = summaries(*grid())["class_shares"]
    assert table.groupby(["run", "phase"])["share"].sum().round(12).eq(1.0).all()
    steps = table[table["phase"] != "all phases"].groupby("run")["share_of_step"].sum()
    assert steps.round(12).eq(1.0).all()


def test_the_share_of_matrix_multiplies_falls():
    text = Said(grid())["d"]
    assert (
        "In the training step, matrix multiplies take a smaller share than in inference in all 4 runs (2.6 to"
        " 15.0 points)" in text
    )
    assert "larger" not in text


def test_the_share_of_matrix_multiplies_rises():
    text = Said([after_forward(run, elementwise_us=1.0, optimizer_us=1.0) for run in grid()])["d"]
    assert "In the training step, matrix multiplies take a larger share than in inference in all 4 runs (" in text
    assert "smaller" not in text


def test_the_share_falls_in_some_and_rises_in_others():
    runs = [after_forward(run, elementwise_us=1.0, optimizer_us=1.0) if run.model == "small" else run for run in grid()]
    text = Said(runs)["d"]
    assert "a smaller share than in inference in 2 of 4 runs (" in text
    assert ", larger in 2 (" in text


def test_a_class_that_gains_in_one_run_and_loses_in_another_is_no_class_that_changes_alike():
    assert "softmax" in Said(grid())["d"]
    runs = [after_forward(run, elementwise_us=1.0, optimizer_us=1.0) if run.model == "small" else run for run in grid()]
    assert "elementwise (" not in Said(runs)["d"]


def test_a_grid_without_training_gives_the_share_of_inference_alone():
    assert Said(forward())["d"] == (
        "Matrix multiplies take 81.6 % of the GPU time of the forward pass. Inference and training cannot be compared:"
        " no configuration has a complete capture of both."
    )


def test_parts_of_the_model_have_a_forward_and_a_backward_time_and_what_is_computed_again_its_own():
    trained = Made(
        mode="train_step",
        kernels=(
            Kernel("forward", "block > norm", NORM, "reduction", 4, 150.0),  # phase, range, name, class, launches, µs
            Kernel("forward", f"{SDPA} > final matmul", GEMM, "gemm", 4, 50.0),
            Kernel("loss", "", NORM, "reduction", 1, 50.0),
            Kernel("backward", "recomputation > block > norm", NORM, "reduction", 4, 100.0),
            Kernel("backward", "block > norm > cub::DeviceReduce", NORM, "reduction", 8, 400.0),
            Kernel("backward", f"{SDPA} > final matmul", GEMM, "gemm", 8, 500.0),
            Kernel("backward", "loss", NORM, "reduction", 1, 60.0),
            Kernel("backward", "", NORM, "reduction", 1, 40.0),
            Kernel("optimizer", "", NORM, "reduction", 1, 1000.0),
        ),
    )
    table = summaries(trained)["training_parts"]
    assert rows(table, "pass", "part", "gpu_time_ms", "share") == [
        ("backward", "final matmul", 0.5, 0.5),
        ("backward", "norm", 0.4, 0.4),
        ("forward", "norm", 0.15, 0.6),
        ("recomputation", "norm", 0.1, 1.0),
        ("backward", "loss", 0.06, 0.06),
        ("forward", "final matmul", 0.05, 0.2),
        ("forward", "loss", 0.05, 0.2),
        ("backward", "(no inner range)", 0.04, 0.04),
    ]
    text = Said([*forward(), trained])["d"]
    assert "Without recomputation, the longest part of the backward pass takes 50.0 % of it: `final matmul`." in text


def test_a_capture_without_ranges_in_the_backward_pass_has_no_times_of_its_parts_whatever_ranges_libraries_open():
    runs = [
        *forward(),
        Made(
            mode="train_step", kernels=(*forward_kernels(), Kernel("backward", "cub::DeviceScan", GEMM, "gemm", 8, 9.0))
        ),
    ]
    assert summaries(*runs)["training_parts"].empty
    assert "backward pass is" not in Said(runs)["d"]


def test_a_compiled_kernel_is_of_a_set_of_parts_that_the_forward_pass_has_one_by_one():
    trained = Made(
        mode="train_step",
        compile="on",
        kernels=(
            Kernel("forward", "norm", NORM, "reduction", 4, 100.0),
            Kernel("forward", "activation + feed-forward", NORM, "reduction", 4, 50.0),
            Kernel("backward", "feed-forward + norm", NORM, "reduction", 4, 300.0),
            Kernel("backward", "", NORM, "reduction", 4, 100.0),
        ),
    )
    table = summaries(trained)["training_parts"]
    assert rows(table[table["pass"] == "backward"], "part", "share") == [
        ("feed-forward + norm", 0.75),
        ("(no inner range)", 0.25),
    ]
