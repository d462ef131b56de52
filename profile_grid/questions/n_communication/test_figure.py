"""The figure of (n), drawn from ranks with planted numbers."""

import pytest

from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.paper import on_paper
from profile_grid.questions.n_communication.all_reduce_figure import NOT_MEASURED
from profile_grid.questions.n_communication.figure import FIGURES, NO_FIGURES, STYLES, bars
from profile_grid.questions.n_communication.test_answer import DDP, FOUR, NAIVE, TABLES, with_all_reduce, with_ranks
from tests.profile_grid.made_up import merged

FIGURE, ALL_REDUCE = FIGURES


@pytest.fixture
def tables():
    made = merged([NAIVE, DDP])
    with_ranks(made, NAIVE, overlapped=0)
    with_ranks(made, DDP, overlapped=9)
    return made | summary_tables(made, TABLES)


def test_the_parts_of_a_bar_stand_behind_each_other_and_end_with_the_step(tables):
    rows = bars(tables["communication_steps"])
    own = rows[rows["bar"] == "small · 512 · batch 8 · 2 × ddp, rank 1"]
    assert own[["part", "start", "end"]].values.tolist() == [
        ["compute", 0.0, 60.0],
        ["exposed communication", 60.0, 63.0],
        ["exposed memory", 63.0, 63.0],
        ["idle", 63.0, 100.0],
    ]
    assert list(STYLES) == own["part"].tolist()


def test_every_run_and_rank_is_a_bar_of_its_own(tables):
    drawing = FIGURE.draw(tables)
    drawn = {row["bar"] for rows in drawing.chart["datasets"].values() for row in rows if "bar" in row}
    assert len(drawn) == 4
    assert FIGURE.caption(tables).startswith("Exposed communication is 3.0 % to 20.0 % of a step; 0.0 % to 75.0 %")
    assert on_paper(FIGURE, {name: tables[name] for name in FIGURE.tables})


def test_without_captures_of_several_ranks_it_says_so():
    made = merged([DDP])
    made |= summary_tables(made, TABLES)
    assert FIGURE.draw(made).reason == FIGURE.caption(made) == NO_FIGURES


def test_all_reduce_alone_is_a_line_for_each_number_of_gpus():
    made = merged([NAIVE, FOUR])
    with_all_reduce(made, NAIVE, {1: 0.1, 1000: 10.0})
    with_all_reduce(made, FOUR, {1: 0.2, 1000: 10.0})
    made |= summary_tables(made, TABLES)
    drawn = [row for rows in ALL_REDUCE.draw(made).chart["datasets"].values() for row in rows]
    assert [(row["ranks"], row["megabytes"], row["bus_gb_per_s"]) for row in drawn] == [
        ("on 2 GPUs", 1.0, 10.0), ("on 2 GPUs", 1000.0, 100.0), ("on 4 GPUs", 1.0, 7.5), ("on 4 GPUs", 1000.0, 150.0),
    ]  # fmt: skip
    assert ALL_REDUCE.caption(made) == "All-reduce alone reaches 7.50 to 150 GB/s on the bus."
    assert on_paper(ALL_REDUCE, {name: made[name] for name in ALL_REDUCE.tables})


def test_where_all_reduce_alone_was_not_measured_the_figure_says_how_to():
    made = merged([DDP])
    made |= summary_tables(made, TABLES)
    assert ALL_REDUCE.draw(made).reason == ALL_REDUCE.caption(made) == NOT_MEASURED


def test_of_many_runs_the_rank_is_drawn_that_the_others_wait_for(tables, monkeypatch):
    monkeypatch.setattr("profile_grid.questions.n_communication.figure.MOST_BARS", 3)
    drawing = FIGURE.draw(tables)
    drawn = {row["bar"] for rows in drawing.chart["datasets"].values() for row in rows if "bar" in row}
    assert drawn == {"small · 512 · batch 8 · 2 × naive, rank 1", "small · 512 · batch 8 · 2 × ddp, rank 1"}
    assert "Of each run the rank is drawn that the others wait for; the table has all." in drawing.notes
