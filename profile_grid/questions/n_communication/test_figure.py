"""The figure of (n), drawn from ranks with planted numbers."""

import pandas as pd
import pytest

from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.paper import on_paper
from profile_grid.questions.n_communication.figure import FIGURES, NO_PAIR, NO_TIMES, costs
from profile_grid.questions.n_communication.test_answer import DDP, NAIVE, TABLES, with_ranks
from profile_grid.study.dimensions import PARALLEL
from profile_grid.tables.evidence import SLOWER, UNCLEAR
from tests.profile_grid.made_up import merged

FIGURE, TIMELINES = FIGURES


@pytest.fixture
def tables():
    made = merged([NAIVE, DDP])
    with_ranks(made, NAIVE, overlapped=0)
    with_ranks(made, DDP, overlapped=9)
    return made | summary_tables(made, TABLES)


def says_why(figure, of_study, reason: str) -> bool:
    """Whether nothing is drawn for this reason, without a headline."""
    drawing, headline = figure.drawn(of_study)
    return (drawing.reason, headline) == (reason, "")


def test_runs_are_ordered_by_what_communication_costs_them_without_a_profiler(tables):
    rows = costs(tables)
    assert rows["cost_share"].tolist() == sorted(tables["communication_times"]["cost_share"], reverse=True)
    for row in rows.to_dict("records"):
        spread = (0.0 if pd.isna(row["baseline_spread"]) else row["baseline_spread"]) * row["baseline_ms"]
        ends = (row["cost_share"] + sign * spread / row["mean_ms"] for sign in (-1, 1))
        assert (row["low"], row["high"]) == pytest.approx(tuple(ends))
    drawn = [row for data in FIGURE.draw(tables).chart["datasets"].values() for row in data if "bar" in row]
    assert [row["way"] for row in drawn] == [PARALLEL.name_of(value) for value in rows["parallel"]]
    assert {row["bar"] for row in drawn} == {"small · 512 · training step · batch 8 · 2 GPUs"}
    assert on_paper(FIGURE, {name: tables[name] for name in FIGURE.tables})


def test_only_costs_larger_than_the_differences_between_processes_are_named(tables):
    times = tables["communication_times"].assign(cost_share=[0.2, 0.1])
    tables["communication_times"] = times.assign(verdict=[SLOWER, UNCLEAR])
    result = "Communication costs 20.0 % of a step in 1 of 2 runs; in the others, its cost is unclear"
    assert FIGURE.result(tables) == result
    tables["communication_times"] = times.assign(verdict=UNCLEAR)
    assert FIGURE.result(tables) == "No cost of communication is larger than the differences between processes"


def test_without_times_of_several_gpus_it_says_so(tables):
    tables["communication_times"] = tables["communication_times"].assign(cost_share=float("nan"))
    assert says_why(FIGURE, tables, NO_TIMES)


def test_the_two_runs_that_overlap_least_and_most_are_drawn_above_each_other(tables):
    rows = tables["communication_timelines"]
    assert rows[["parallel", "step_ms", "start_ms", "end_ms", "exposed_ms"]].values.tolist() == [
        ["naive", 100.0, 0.0, 20.0, 20.0],
        ["ddp", 100.0, 0.0, 20.0, 11.0],
    ]
    drawn = [row for data in TIMELINES.draw(tables).chart["datasets"].values() for row in data if "kind" in row]
    assert {(row["parallel"], row["kind"]) for row in drawn} == {("naive", "exposed"), ("ddp", "exposed")}
    assert TIMELINES.result(tables) == (
        "Computation overlaps this share of communication: 0.0 % with naive DDP, 45.0 % with ddp"
    )
    assert on_paper(TIMELINES, {name: tables[name] for name in TIMELINES.tables})


def test_without_a_pair_of_runs_no_timeline_is_drawn():
    made = merged([NAIVE])
    with_ranks(made, NAIVE, overlapped=0)
    made |= summary_tables(made, TABLES)
    assert says_why(TIMELINES, made, NO_PAIR)
