"""Each test feeds made-up tables and reads the sentences."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.study.dimensions import DIMENSIONS, MODE
from profile_grid.tables.wording import extremes
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
    assert "The same kernel leads in the training step in all 3 configurations." in text["b"]
    assert all(text[letter].endswith("Of 12 runs 1 lacks figures (see *Not measured*).") for letter in text.questions)


def test_no_kernels_at_all_still_answers_with_wall_times_and_says_why():
    machine = {**CPU, "backend": "nsys", "nsys": "2022.4.2"}
    text = Said([without_figures(replace(run, machine=machine), note="nsys sees no operators") for run in grid()])
    assert "The profiled one matches that within 5 % in all 4 configurations" in text["a"]
    for question in "bcde":
        assert text[question] == (
            "Not answered: no operators were captured by Nsight Systems 2022.4.2 (nsys sees no operators)."
        )


def test_captures_that_are_not_whole_leave_the_timing_and_give_their_reason():
    runs = [replace(without_figures(run, reason="no kernel table"), capture_status="incomplete") for run in grid()]
    text = Said(runs)
    assert "one forward pass takes 4.03 ± 0.10 ms" in text["a"]
    assert "whether they match cannot be said" in text["a"]
    assert "(no kernel table)" in text["b"]


def test_a_grid_without_inference_runs_says_what_stands_in():
    runs = [run for run in grid() if run.mode == "train_step"]
    text = Said(runs)
    for question in "abce":
        assert "The grid has no run of the forward pass alone: the one inside the training step" in text[question]
    assert "one training step takes" in text["a"]


def test_nothing_measured_is_not_answered_and_not_a_zero():
    nowhere = dict.fromkeys(CPU)
    runs = [
        replace(without_figures(r), machine=nowhere, timing_status="missing", capture_status="missing") for r in grid()
    ]
    text = Said(runs)
    assert text["a"].startswith("No run was timed without a profiler")
    assert text["d"].startswith("Not answered: no kernels were captured (the runs give no reason).")
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
    assert Said([on_cpu(run) for run in grid()])["b"].startswith(
        "`aten::mm` takes the most operator time in the forward pass of all 4 configurations"
    )


def labels_of(**columns) -> str:
    plain = {one.key: [one.default if one.default is not None else "tiny"] * 2 for one in DIMENSIONS}
    rows = pd.DataFrame(plain | {"context_length": [64, 64], "mode": ["forward", "forward"], "n": [1, 2]} | columns)
    return extremes(rows, "n", lambda row: str(row["n"]))


@pytest.mark.parametrize("dimension", [one for one in DIMENSIONS if one is not MODE], ids=lambda one: one.key)
def test_the_labels_of_two_rows_tell_their_runs_apart_in_whatever_they_differ(dimension):
    first = 0 if dimension.default is None else dimension.default
    low, high = re.findall(r"\((.*?)\)(?: to|$)", labels_of(**{dimension.key: [first, "other"]}))
    assert low != high and "forward pass" not in low


def test_labels_name_the_mode_where_the_rows_differ_in_it():
    assert labels_of(mode=["forward", "train_step"]) == (
        "1 (tiny at context 64, forward pass) to 2 (tiny at context 64, training step)"
    )
