"""The rows of the figure of (d), held against loops over the tables."""

from collections import defaultdict

import pandas as pd
import pytest

from profile_grid.questions.d_training_vs_inference.figure import FIGURES, drawn_shares, sides_of
from tests.profile_grid.made_up_grid import FOUR_WAYS, made_up_tables, rows_of


def test_shares_of_families_are_those_of_the_kernels_and_their_bars_fill_one():
    tables = made_up_tables(**FOUR_WAYS)
    shares = drawn_shares(tables["runs"], tables["class_shares"])
    sums = defaultdict(lambda: defaultdict(int))
    for row in rows_of(tables["kernels"]):
        sums[row["run"]][row["class"].split("/")[0]] += row["total_ns"]
    for run, bar in shares.groupby("run"):
        total = sum(sums[run].values())
        assert dict(zip(bar["family"], bar["share"], strict=True)) == pytest.approx(
            {family: ns / total for family, ns in sums[run].items()}
        )
        assert bar["start"].iloc[0] == pytest.approx(0)
        assert bar["end"].iloc[-1] == pytest.approx(1)
        assert bar["start"].iloc[1:].tolist() == pytest.approx(bar["end"].iloc[:-1].tolist())
    declared = set(tables["runs"]["run"][tables["runs"]["mode"] != "forward_backward"])
    assert set(shares["run"]) == declared


def test_a_side_shows_every_configuration_once_and_none_that_the_grid_does_not_have():
    both = made_up_tables(models=("small",), contexts=(128,))
    training = made_up_tables(models=("medium",), contexts=(512,), modes=("forward_backward",))
    runs = sides_of(pd.concat([both["runs"], training["runs"]]))
    assert dict(zip(runs["run"], runs["side"], strict=True)) == {
        "small_ctx128_forward": "inference",
        "small_ctx128_train_step": "training",
        "medium_ctx512_forward_backward": "training",
    }


def test_the_side_of_training_is_named_by_its_mode_even_if_no_training_was_captured():
    tables = made_up_tables(models=("small",), contexts=(512,)).whole()
    is_forward = tables["runs"]["mode"] == "forward"
    status = tables["runs"]["capture_status"].where(is_forward, "out_of_memory")
    forward = tables["class_shares"][tables["class_shares"]["run"].isin(tables["runs"].loc[is_forward, "run"])]
    (figure,) = FIGURES
    drawing = figure.draw(tables | {"runs": tables["runs"].assign(capture_status=status), "class_shares": forward})
    assert "training (training step)" in str(drawing.chart) and "training (forward pass)" not in str(drawing.chart)


def test_on_a_processor_the_figure_is_of_operators():
    tables = made_up_tables(models=("small",), contexts=(512,))
    (figure,) = FIGURES
    on_cpu = tables.whole() | {"runs": tables["runs"].assign(device="cpu")}
    assert figure.draw(on_cpu).title == "Operator classes as shares of the time of all operators"
    assert figure.draw(tables).title == figure.title
