"""The figure of (f), drawn from a made-up grid in two precisions."""

import json

from profile_grid.figures.paper import on_paper
from profile_grid.figures.speed_ups import PALE_OPACITY, PHASES
from profile_grid.questions.f_precision.figure import FIGURES
from profile_grid.tables.evidence import UNCLEAR
from tests.profile_grid.made_up_grid import OOM, made_up_tables

(FIGURE,) = FIGURES
MODELS = ("small", "large")


def tables(**changes):
    return made_up_tables(models=MODELS, contexts=(512,), **changes)


def test_every_speed_up_is_a_point_of_its_phase_and_precision():
    made = tables(precisions=("fp32", "bf16"), changes={"large_ctx512_train_step_bf16": OOM})
    drawing = FIGURE.draw(made)
    points = {
        (row["run"], row["phase"]) for rows in drawing.chart["datasets"].values() for row in rows if "precision" in row
    }
    times = made["precision_times"]
    times = times[times["phase"].isin(PHASES) & ((times["mode"] != "forward") | (times["phase"] == "step"))]
    assert points == set(zip(times["run"], times["phase"], strict=True))
    assert drawing.absent == ("Out of memory: large · 512 · training step · bf16.",)
    assert "times as fast as fp32" in json.dumps(drawing.chart)


def test_the_result_says_the_speed_ups_of_complete_steps():
    made = tables(precisions=("fp32", "bf16"), modes=("train_step",))
    result = FIGURE.result(made)
    assert result.startswith("Speed-up of a training step: × ") and result.endswith(" in bf16")


def test_without_a_pair_the_figure_says_why():
    drawing = FIGURE.draw(tables())
    assert drawing.chart is None and drawing.reason.startswith("No two timed runs differ only in precision")


def test_it_can_be_drawn_on_paper():
    assert on_paper(FIGURE, {name: tables(precisions=("fp32", "bf16"))[name] for name in FIGURE.tables})


def test_speed_ups_that_cannot_be_told_from_noise_are_pale_and_no_result():
    made = tables(precisions=("fp32", "bf16"), modes=("train_step",))
    times = made["precision_times"]
    made = {"runs": made["runs"], "precision_times": times.assign(verdict=UNCLEAR)}
    assert FIGURE.result(made) == "Both comparisons are unclear"
    drawn = [row for rows in FIGURE.draw(made).chart["datasets"].values() for row in rows if "opacity" in row]
    assert {row["opacity"] for row in drawn} == {PALE_OPACITY}
