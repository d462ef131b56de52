"""The figure of (k), drawn from times of steps that a person can check."""

import pytest

from profile_grid.figures.paper import on_paper
from profile_grid.questions.k_warmup.figure import FIGURES, every_step
from profile_grid.questions.k_warmup.test_answer import SLOW, STEADY, joined, timed
from tests.profile_grid.made_up import Made, merged

(FIGURE,) = FIGURES


def test_the_steps_of_a_run_are_numbered_from_the_first_warm_up_step_on():
    rows = every_step(timed(Made(), SLOW, STEADY))
    assert rows["number"].tolist() == list(range(7))
    assert rows["ratio"].tolist() == pytest.approx([10.0, 2.0, 1.0, 0.9, 1.1, 1.0, 1.0])
    assert rows["begins"].unique().tolist() == [2.5]


def test_every_step_is_a_point_of_its_run_and_mode():
    made = joined(timed(Made(), SLOW, STEADY), timed(Made(mode="train_step"), SLOW, STEADY))
    drawing = FIGURE.draw(made)
    points = [row for rows in drawing.chart["datasets"].values() for row in rows if "ratio" in row]
    assert {(row["run"], row["number"]) for row in points} == {
        (run, number) for run in made["runs"]["run"] for number in range(7)
    }
    assert FIGURE.result(made) == "The first step takes 10.0 times as long as a measured one, the second 2.00 times"
    assert on_paper(FIGURE, {name: made[name] for name in FIGURE.tables})


def test_one_slow_step_of_a_panel_has_a_label_so_that_labels_do_not_cover_each_other():
    made = joined(
        *(
            timed(Made(context_length=context), SLOW, {"step": [10.0, 10.0, later]})
            for context, later in ((512, 30.0), (256, 20.0))
        )
    )
    texts = [row["text"] for rows in FIGURE.draw(made).chart["datasets"].values() for row in rows if "text" in row]
    assert texts == ["step 5"]


def test_without_warm_up_times_the_figure_says_so():
    nothing = merged([Made()])
    drawing, headline = FIGURE.drawn(nothing)
    assert headline == "" and drawing.reason.startswith("Not answered: no timed run kept")
