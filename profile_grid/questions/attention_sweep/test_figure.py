"""The figure of attention alone: every cell is a point or a cross."""

from pathlib import Path

from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.paper import on_paper
from profile_grid.questions.attention_sweep.figure import FIGURES
from tests.profile_grid.made_up_operator import cell, merged, run, single_calls, three

(FIGURE,) = FIGURES


def test_the_figure_has_a_point_for_every_cell_with_times_and_a_cross_for_every_other():
    tables = merged(three(), Path("no folder of runs"))
    tables |= summary_tables(tables)
    data = [row for rows in on_paper(FIGURE, tables)["datasets"].values() for row in rows]
    assert len([row for row in data if "both_ms_low" in row and row["status"] == "complete"]) == 5
    assert {row["label"] for row in data if "label" in row} == {"eager: out of memory"}
    assert FIGURE.draw(tables).absent == ("Out of memory: eager in fp32 at 1024.",)
    assert FIGURE.result(tables).endswith(" times as fast as eager")


def test_single_calls_are_drawn_with_their_share_of_the_peak_below():
    runs = [
        run("eager", cell(9.0, **single_calls(1.0))), run("flash", cell(9.0, **single_calls(0.25)), attention="flash"),
    ]  # fmt: skip
    tables = merged(runs, Path("no folder of runs"))
    tables |= summary_tables(tables)
    data = [row for rows in on_paper(FIGURE, tables)["datasets"].values() for row in rows]
    assert {round(row["both_ms"], 6) for row in data if "both_ms_low" in row} == {3.0, 0.75}
    assert len({row["of_peak"] for row in data if "of_peak_low" in row}) == 2
    assert any("empty L2 cache" in note for note in FIGURE.draw(tables).notes)
