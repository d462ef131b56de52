"""Each test feeds made-up tables and reads the sentences."""

from dataclasses import replace

import pytest

from profile_grid.study.dimensions import DIMENSIONS, MODE
from profile_grid.tables.wording import run_in_words
from tests.profile_grid.made_up import CPU, Made, grid
from tests.profile_grid.made_up_answers import Said, without_figures

ATEN = {"gemm": "mm", "elementwise": "mul", "softmax": "_softmax", "reduction": "mean", "optimizer": "_fused_adamw_"}


# what is not there


def test_one_size_out_of_memory_is_left_out_of_every_sentence_and_counted():
    runs = [
        without_figures(replace(run, timing_status="out_of_memory", capture_status="out_of_memory"))
        if (run.model, run.context_length, run.mode) == ("large", 512, "train_step")
        else run
        for run in grid()
    ]
    text = Said(runs)
    assert "the same kernel leads training in all 3 runs." in text["b"]
    assert not any("lacks" in text[letter] for letter in text.questions)


def test_no_kernels_at_all_still_answers_with_wall_times_and_says_why():
    machine = {**CPU, "backend": "nsys", "nsys": "2022.4.2"}
    text = Said([without_figures(replace(run, machine=machine), note="nsys sees no operators") for run in grid()])
    assert "differs by at most 5 % in all 4 runs." in text["a"]
    for question in "bcde":
        assert text[question] == (
            "Not answered: no operators were captured by Nsight Systems 2022.4.2 (nsys sees no operators)."
        )


def test_captures_that_are_not_whole_leave_the_timing_and_give_their_reason():
    runs = [replace(without_figures(run, reason="no kernel table"), capture_status="incomplete") for run in grid()]
    text = Said(runs)
    assert "A forward pass takes 4.03 to 16.6 ms" in text["a"]
    assert "no run has both a timing and a capture" in text["a"]
    assert "(no kernel table)" in text["b"]


def test_a_grid_without_inference_runs_says_what_stands_in():
    runs = [run for run in grid() if run.mode == "train_step"]
    text = Said(runs)
    alone = "No run measured the forward pass alone"
    assert f"{alone}: times and idle time of a step are those of the training step; the other numbers are" in text["a"]
    for question in "bce":
        assert f"{alone}; the numbers are those of the forward phase of the training step" in text[question]
    assert "A training step takes" in text["a"]


def test_nothing_measured_is_not_answered_and_not_a_zero():
    nowhere = dict.fromkeys(CPU)
    runs = [
        replace(without_figures(r), machine=nowhere, timing_status="missing", capture_status="missing") for r in grid()
    ]
    text = Said(runs)
    assert text["a"].startswith("Not answered: no run was timed without a profiler")
    assert text["d"].startswith("Not answered: no kernels were captured (no reason was recorded).")
    not_asked = Said([replace(run, capture_status="not_asked") for run in runs])
    assert not_asked["d"].startswith("Not answered: no kernels were captured (captures were not requested).")
    assert not any("0.0" in text[letter] for letter in text.questions)


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
    text = Said([on_cpu(run) for run in grid()])[question]
    assert "GPU" not in text
    assert "CUDA" not in text
    assert "kernel" not in text


def test_a_name_that_is_short_already_stands_as_it_is():
    assert "): `aten::mm` in all 4 runs; the same operator leads" in Said([on_cpu(run) for run in grid()])["b"]


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda dimension: dimension.key)
def test_runs_that_differ_in_any_dimension_have_different_words(dimension):
    plain = {one.key: "tiny" if one.default is None else one.default for one in DIMENSIONS}
    plain |= {"context_length": 64, "mode": "forward"}
    other = "train_step" if dimension is MODE else "other"
    assert run_in_words(plain) != run_in_words(plain | {dimension.key: other})
