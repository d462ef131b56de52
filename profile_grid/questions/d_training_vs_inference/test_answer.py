"""The tables and sentences of (d), from made-up runs."""

from tests.profile_grid.made_up import (
    grid,
)
from tests.profile_grid.made_up_answers import after_forward, forward, said, summaries


def test_class_shares_sum_to_one_in_every_phase_and_over_all_phases():
    table = summaries(*grid())["class_shares"]
    assert table.groupby(["run", "phase"])["share"].sum().round(12).eq(1.0).all()
    steps = table[table["phase"] != "all phases"].groupby("run")["share_of_step"].sum()
    assert steps.round(12).eq(1.0).all()


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
