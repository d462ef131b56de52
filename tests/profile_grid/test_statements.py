"""Each test feeds made-up tables and reads the sentences."""

from dataclasses import replace

import pytest

from profile_grid.documents.documents import section
from profile_grid.documents.summaries import summary_tables
from profile_grid.tables.machines import by_machine
from tests.profile_grid.made_up import CPU, GEMM, Kernel, Made, forward_kernels, grid, merged, training_kernels

ATEN = {"gemm": "mm", "elementwise": "mul", "softmax": "_softmax", "reduction": "mean", "optimizer": "_fused_adamw_"}


def said(runs: list[Made]) -> dict[str, str]:
    """The sentences of the first machine by the letter of their question."""
    tables = merged(runs)
    machine, names = by_machine(tables["runs"])[0]
    sentences = section(machine, names, tables["runs"], summary_tables(tables)).sentences
    return {question[0]: " ".join(lines) for question, lines in sentences.items()}


def forward(**changes) -> list[Made]:
    return [Made(**{"kernels": forward_kernels(), **changes})]


def after_forward(run: Made, **times) -> Made:
    """The run with other kernels after its forward pass."""
    kept = tuple(kernel for kernel in run.kernels if kernel.phase == "forward")
    return replace(run, kernels=kept + training_kernels(run.mode, **times))


def without_figures(run: Made, **others) -> Made:
    return replace(run, kernels=(), others=others)


# (a) the time of the forward pass


def test_a_grid_that_matches_python_says_so_with_its_ratios():
    assert said(grid())["a"].startswith(
        "Timed by Python without a profiler, one forward pass takes 4.03 ± 0.10 ms (small at context 128) to"
        " 16.64 ± 0.10 ms (large at context 512). The profiled one matches that within 5 % in all 4 configurations"
        " (× 1.01 to × 1.03)."
    )


def test_a_single_run_is_told_in_the_singular():
    assert said(forward())["a"].startswith(
        "Timed by Python without a profiler, one forward pass takes 11.80 ± 0.10 ms (small at context 512). Under the"
        " profiler it takes 12.0010 ± 0.0010 ms, × 1.017 ± 0.009 of that: it matches within 5 %."
    )


def test_many_short_kernels_and_an_idle_gpu_are_called_launch_bound():
    text = said(forward(kernels=forward_kernels(layers=100), step_wall_ms=20.0))["a"]
    assert "× 1.695 ± 0.014 of that: it does not match within 5 %." in text
    assert (
        "There no kernel runs during 51.0 % of the profiled step, and the 1,200 kernels of a forward pass take the CPU"
        " 8.33 µs each to launch and the GPU 8.17 µs to run: launch-bound, so what the profiler adds to every launch"
        " shows." in text
    )


def test_an_idle_gpu_whose_kernels_take_longer_than_their_launch_is_not_called_launch_bound():
    text = said(forward(step_wall_ms=16.0))["a"]
    assert "though launching a kernel takes less (55.6 µs) than running it (68.1 µs): not launch-bound;" in text


def test_a_busy_gpu_is_not_called_launch_bound():
    text = said(forward(step_wall_ms=10.0, unprofiled_ms=9.0))["a"]
    assert "kernels run during 98.0 % of the profiled step: not launch-bound" in text


def test_a_step_that_is_shorter_under_the_profiler_is_not_blamed_on_it():
    text = said(forward(step_wall_ms=10.0, unprofiled_ms=12.0))["a"]
    assert "the profiled step is the shorter one, which no profiler causes" in text


def test_a_difference_within_the_scatter_of_the_steps_is_given_no_reason():
    text = said(forward(step_wall_ms=13.0, unprofiled_ms=12.0, unprofiled_std_ms=3.0))["a"]
    assert "it does not match within 5 %. There the difference is no larger than 2 standard deviations" in text
    assert "bound" not in text


def test_some_that_match_and_some_that_do_not_are_told_apart():
    runs = grid(modes=("forward",))
    runs[0] = replace(runs[0], step_wall_ms=2 * runs[0].step_wall_ms)
    text = said(runs)["a"]
    assert (
        "matches that within 5 % in 3 of 4 configurations; not in small at context 128, where it takes × 2.05" in text
    )


def test_a_range_that_covers_the_work_of_the_gpu_is_not_called_shorter_than_it():
    assert "shorter than the GPU's work" in said(forward())["a"]
    assert "shorter than the GPU's work" not in said(forward(step_wall_ms=20.0))["a"]


# (b) the top kernel


def test_the_same_top_kernel_everywhere():
    assert said(grid())["b"] == (
        "**gemm 1** takes the most GPU time in the forward pass of all 4 configurations: 51.2 % to 67.8 % of it, 60 to"
        " 180 invocations per pass. Every measured step has the same number of them. The same kernel leads in"
        " forward + backward in all 4 configurations. The same kernel leads in the training step in all 4"
        " configurations."
    )


def test_another_top_kernel_in_training():
    runs = [after_forward(run, matmul_us=100.0, elementwise_us=50000.0) for run in grid()]
    assert "In the training step another kernel leads in all 4 configurations: **elementwise 1**." in said(runs)["b"]


def test_another_top_kernel_in_some_of_the_grid():
    runs = [after_forward(run, elementwise_us=50000.0) if run.model == "small" else run for run in grid()]
    assert (
        "The same kernel leads in the training step in 2 of 4 configurations; elsewhere it is **elementwise 1**."
        in said(runs)["b"]
    )


def test_different_top_kernels_of_the_forward_pass_are_told_by_class():
    runs = grid(modes=("forward",))
    runs[0] = replace(runs[0], kernels=forward_kernels(10.0, 5000.0))
    assert said(runs)["b"].startswith(
        "In the forward pass the kernel with the most GPU time is a gemm kernel in 3 of 4 configurations and a softmax"
        " kernel in 1: 2 different ones, with"
    )


def test_one_captured_step_cannot_tell_whether_steps_agree():
    assert "One step was captured, so whether every step has as many cannot be said." in said(forward(steps=1))["b"]


# (c) other kernels


def test_the_other_kernels_are_told_by_class_part_and_name():
    assert said(forward())["c"] == (
        "Outside matrix multiplies the forward pass spends 18.4 % (small at context 512) of its GPU time. Classes"
        " that take 1 % or more somewhere: softmax (9.2 %), elementwise (6.1 %) and reduction (3.1 %). Below 1 %"
        " everywhere: memcpy. The part of the model that takes most of that time is `computing softmax` (49.9 % of it)."
        " Of these kernels the one with the most GPU time is **softmax 1**."
    )


def test_captures_without_inner_ranges_cannot_tell_parts_of_the_model():
    runs = [replace(run, kernels=tuple(replace(kernel, range="") for kernel in run.kernels)) for run in grid()]
    text = said(runs)
    assert "Which part of the model these kernels serve cannot be said" in text["c"]
    assert (
        "the captures have no range `computing attention scores`, `computing softmax` and `final matmul`" in text["e"]
    )
    assert "51.2 % to 67.8 %" in text["b"]


def test_fused_attention_is_said_to_hold_matrix_multiplies():
    flash = Kernel("forward", "block > attention", "flash_fwd_kernel", "attention", 12, 1000.0)
    text = said(forward(kernels=(Kernel("forward", "", GEMM, "gemm", 60, 3000.0), flash)))
    assert "Fused attention kernels (25.0 % of the forward pass) hold matrix multiplies and softmax in one" in text["c"]
    assert "Fused attention kernels" in text["e"]


# (d) inference and training


def test_the_share_of_matrix_multiplies_falls():
    text = said(grid())["d"]
    assert "the share of matrix multiplies falls in all 4 configurations by 2.6 to 15.0 percentage points." in text
    assert "rises" not in text


def test_the_share_of_matrix_multiplies_rises():
    text = said([after_forward(run, elementwise_us=1.0, optimizer_us=1.0) for run in grid()])["d"]
    assert "the share of matrix multiplies rises in all 4 configurations by" in text
    assert "falls" not in text
    assert "loses the most" in text


def test_the_share_falls_in_some_and_rises_in_others():
    runs = [after_forward(run, elementwise_us=1.0, optimizer_us=1.0) if run.model == "small" else run for run in grid()]
    text = said(runs)["d"]
    assert "falls in 2 of 4 configurations by" in text
    assert "and rises in 2 of 4 configurations by" in text


def test_a_grid_without_training_gives_the_share_of_inference_alone():
    assert said(forward())["d"] == (
        "Matrix multiplies take 81.6 % of the GPU time of the forward pass. Inference and training cannot be compared:"
        " no model has a whole capture of both."
    )


# (e) attention


def test_softmax_is_compared_with_the_matrix_multiplies_in_time_and_flops():
    assert said(forward())["e"].startswith(
        "Softmax takes × 0.562 the time of the two matrix multiplies with 2.0 % of their FLOPs, so one of its FLOPs"
        " takes 28.8 times as long as one of theirs."
    )


def test_a_softmax_that_is_cheaper_per_flop_is_told_as_such():
    text = said(forward(kernels=forward_kernels(8000.0, 16.0)))["e"]
    assert "so one of its FLOPs takes only 0.512 of the time of one of theirs." in text


# what is not there


def test_one_size_out_of_memory_is_left_out_of_every_sentence_and_counted():
    runs = [
        without_figures(replace(run, timing_status="out_of_memory", capture_status="out_of_memory"))
        if (run.model, run.context_length, run.mode) == ("large", 512, "train_step")
        else run
        for run in grid()
    ]
    text = said(runs)
    assert "The same kernel leads in the training step in all 3 configurations." in text["b"]
    assert all(sentences.endswith("Of 12 runs 1 lacks figures (see *Not measured*).") for sentences in text.values())


def test_no_kernels_at_all_still_answers_with_wall_times_and_says_why():
    machine = {**CPU, "backend": "nsys", "nsys": "2022.4.2"}
    text = said([without_figures(replace(run, machine=machine), note="nsys sees no operators") for run in grid()])
    assert "The profiled one matches that within 5 % in all 4 configurations" in text["a"]
    for question in "bcde":
        assert text[question] == (
            "Not answered: no operators were captured by Nsight Systems 2022.4.2 (nsys sees no operators)."
        )


def test_captures_that_are_not_whole_leave_the_timing_and_give_their_reason():
    runs = [replace(without_figures(run, reason="no kernel table"), capture_status="incomplete") for run in grid()]
    text = said(runs)
    assert "one forward pass takes 4.03 ± 0.10 ms" in text["a"]
    assert "whether they match cannot be said" in text["a"]
    assert "(no kernel table)" in text["b"]


def test_a_grid_without_inference_runs_says_what_stands_in():
    runs = [run for run in grid() if run.mode == "train_step"]
    text = said(runs)
    for question in "abce":
        assert "The grid has no run of the forward pass alone: the one inside the training step" in text[question]
    assert "one training step takes" in text["a"]


def test_nothing_measured_is_not_answered_and_not_a_zero():
    nowhere = dict.fromkeys(CPU)
    runs = [
        replace(without_figures(r), machine=nowhere, timing_status="missing", capture_status="missing") for r in grid()
    ]
    text = said(runs)
    assert text["a"].startswith("No run was timed without a profiler")
    assert text["d"].startswith("Not answered: no kernels were captured (the runs give no reason).")
    assert not any("0.0" in sentences for sentences in text.values())


# operators of a CPU


def on_cpu(run: Made) -> Made:
    kernels = tuple(
        replace(kernel, name=f"aten::{ATEN[kernel.kernel_class]}")
        for kernel in run.kernels
        if kernel.kernel_class in ATEN
    )
    return replace(run, kernels=kernels, machine=CPU)


@pytest.mark.parametrize("question", list("abcde"))
def test_on_a_cpu_the_sentences_speak_of_operators(question):
    text = said([on_cpu(run) for run in grid()])[question]
    assert "GPU" not in text
    assert "CUDA" not in text
    assert "kernel" not in text


def test_a_short_name_needs_no_label():
    assert said([on_cpu(run) for run in grid()])["b"].startswith(
        "`aten::mm` takes the most operator time in the forward pass of all 4 configurations"
    )
