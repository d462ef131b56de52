"""The figure of (n), drawn from ranks with planted numbers."""

import pytest

from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.paper import on_paper
from profile_grid.questions.n_communication.figure import FIGURES, NO_FIGURES, STYLES, bars
from profile_grid.questions.n_communication.test_answer import DDP, NAIVE, TABLES, with_ranks
from tests.profile_grid.made_up import merged

(FIGURE,) = FIGURES


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
