"""The figure of attention alone: every cell is a point or a cross."""

from pathlib import Path

from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.paper import on_paper
from profile_grid.questions.attention_sweep.figure import FIGURES
from tests.profile_grid.made_up_operator import merged, three

(FIGURE,) = FIGURES


def test_the_figure_has_a_point_for_every_cell_with_times_and_a_cross_for_every_other():
    tables = merged(three(), Path("no folder of runs"))
    tables |= summary_tables(tables)
    data = [row for rows in on_paper(FIGURE, tables)["datasets"].values() for row in rows]
    assert len([row for row in data if "both_ms_low" in row and row["status"] == "complete"]) == 5
    assert {row["label"] for row in data if "label" in row} == {"eager: out of memory"}
    assert FIGURE.draw(tables).absent == ("Out of memory: eager in fp32 at 1024.",)
    assert FIGURE.result(tables).endswith(" times as fast as eager")
