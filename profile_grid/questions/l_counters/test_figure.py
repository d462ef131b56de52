"""The figure of (l), drawn from kernels that a person can place."""

import pytest

from profile_grid.figures.paper import on_paper
from profile_grid.questions.l_counters.figure import FIGURES
from profile_grid.questions.l_counters.test_answer import FORWARD, QUESTION, TRAINING, counted
from tests.profile_grid.chart_fields import fields_and_columns
from tests.profile_grid.made_up import merged
from tests.profile_grid.made_up_answers import own_tables

(FIGURE,) = FIGURES


def tables(*runs):
    made = counted(*runs)
    return made | dict(own_tables(QUESTION, made))


def rows_of(drawing) -> list[dict]:
    return [row for rows in drawing.chart["datasets"].values() for row in rows]


def test_every_kernel_with_flops_has_a_marker_at_its_intensity_below_its_roof():
    rows = rows_of(FIGURE.draw(tables(FORWARD)))
    markers = [row for row in rows if "verdict" in row]
    assert {row["verdict"] for row in markers} == {"compute", "memory", "too small"}
    for row in markers:
        assert row["flop_per_s"] <= min(50e12, 4e12 * row["flops_per_byte"])
    lines = [row for row in rows if "text" in row]
    assert {row["text"] for row in lines} == {"fp32: 50.0 TFLOP/s", "bf16: 800 TFLOP/s"}


def test_each_configuration_has_a_panel_of_its_fullest_mode_and_a_run_without_counters_is_named():
    made = tables(FORWARD, TRAINING)
    drawing = FIGURE.draw(made)
    assert [len(line["hconcat"]) for line in drawing.chart["vconcat"]] == [1]
    assert {row["mode"] for row in rows_of(drawing) if "verdict" in row} == {"train_step"}
    made["runs"].loc[made["runs"]["mode"] == "forward", "counters_status"] = "unsupported"
    assert any("small · 512 · forward pass" in note for note in FIGURE.draw(made).absent)


def test_the_figure_can_be_drawn_on_paper_and_says_why_where_there_is_nothing():
    made = tables(FORWARD)
    assert on_paper(FIGURE, {name: made[name] for name in FIGURE.tables})
    assert FIGURE.result(made).endswith("the kernels of a run reach 77.4 % of their nearer roof")
    nothing = merged([FORWARD])
    nothing |= dict(own_tables(QUESTION, nothing))
    drawing, headline = FIGURE.drawn(nothing)
    assert headline == "" and "no run has counters" in drawing.reason


@pytest.mark.parametrize("runs", [(FORWARD,), (FORWARD, TRAINING)])
def test_every_field_that_a_mark_names_is_a_column_of_its_data(runs):
    parts = fields_and_columns(FIGURE.draw(tables(*runs)).chart)
    assert len(parts) >= 5
    for fields, columns in parts:
        assert fields and fields <= columns, fields - columns
