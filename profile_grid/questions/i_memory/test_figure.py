"""The figures of (i), drawn from a history that a person can follow."""

from itertools import pairwise

import pandas as pd
import pytest

from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.marks import part_fills
from profile_grid.figures.paper import on_paper
from profile_grid.questions.i_memory import table
from profile_grid.questions.i_memory.figure import FIGURES
from profile_grid.questions.i_memory.test_answer import recorded, training
from profile_grid.study.stages import MEMORY
from tests.profile_grid.chart_fields import fields_and_columns
from tests.profile_grid.made_up import Made, merged

CATEGORIES, TIMELINE = FIGURES
SUMMARIES = [declared.name for declared in table.TABLES]


def tables(*runs: Made):
    merged_tables = recorded(list(runs))
    return merged_tables | summary_tables(merged_tables, SUMMARIES)


def rows_of(drawing):
    return [row for rows in drawing.chart["datasets"].values() for row in rows]


def test_the_parts_of_a_bar_follow_on_each_other_and_end_at_the_peak():
    rows = [row for row in rows_of(CATEGORIES.draw(tables(training()))) if "size" in row]
    assert [row["category"] for row in rows][:2] == ["parameters", "optimizer state"]
    for before, after in pairwise(rows):
        assert after["start"] == pytest.approx(before["end"])
    assert rows[-1]["end"] == pytest.approx(518)


def test_a_run_out_of_memory_is_named_below_the_figure():
    made = tables(training(), training(model="large"))
    made["runs"].loc[made["runs"]["model"] == "large", MEMORY.status_column] = "out_of_memory"
    assert CATEGORIES.draw(made).absent == ("Out of memory: large · 512 · training step.",)


def test_the_timeline_is_that_of_the_run_that_needs_most_and_names_the_phases():
    made = tables(training(), Made(mode="forward_backward", precision="bf16"))
    rows = rows_of(TIMELINE.draw(made))
    assert {row["phase"] for row in rows if "phase" in row and "category" not in row} == {
        "forward", "loss", "backward", "optimizer",
    }  # fmt: skip
    assert max(row["end"] for row in rows if "end" in row) == pytest.approx(518)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_can_be_drawn_on_paper_and_says_why_where_there_is_nothing(figure):
    made = tables(training())
    assert on_paper(figure, {name: made[name] for name in figure.tables})
    assert "518 MiB" in figure.result(made)
    nothing = merged([training()])
    nothing |= summary_tables(nothing, SUMMARIES)
    drawing, headline = figure.drawn(nothing)
    assert "complete history" in drawing.reason and headline == ""


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_field_that_a_mark_names_is_a_column_of_its_data(figure):
    parts = fields_and_columns(figure.draw(tables(training())).chart)
    assert len(parts) >= 2
    for fields, columns in parts:
        assert fields and fields <= columns, fields - columns


def test_the_key_names_an_area_that_is_thin_and_no_part_of_a_bar_that_its_outline_hides():
    rows = pd.DataFrame({"category": ["parameters", "temporary"], "start": [0.0, 99.6], "end": [99.6, 100.0]})
    areas, bars = (part_fills(rows, "category", lined=lined).to_dict()["legend"]["values"] for lined in (False, True))
    assert (areas, bars) == (["parameters", "temporary"], ["parameters"])
