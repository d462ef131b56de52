"""The figure of (h), drawn from a made-up grid with three kinds of attention."""

from profile_grid.figures.paper import on_paper
from profile_grid.questions.h_attention.figure import FIGURES
from tests.profile_grid.made_up_grid import OOM, made_up_tables

(FIGURE,) = FIGURES
LONGEST = "small_ctx2048_train_step"


def tables(**changes):
    grid = {"models": ("small",), "contexts": (512, 2048), "modes": ("train_step",)}
    return made_up_tables(**(grid | {"attentions": ("eager", "flash")} | changes))


def test_every_time_is_a_point_and_what_ran_out_of_memory_a_cross_at_its_length():
    made = tables(changes={LONGEST: OOM})
    drawing = FIGURE.draw(made)
    rows = [row for rows in drawing.chart["datasets"].values() for row in rows]
    assert {row["run"] for row in rows if "mean_ms_low" in row} == set(made["runs"]["run"]) - {LONGEST}
    assert {(row["label"], row["context_length"]) for row in rows if "label" in row} == {("eager: out of memory", 2048)}
    assert drawing.absent == ("Out of memory: small · 2048 · training step.",)
    assert FIGURE.result(made).startswith("At context 512 flash is ")
    assert on_paper(FIGURE, {name: made[name] for name in FIGURE.tables})


def test_without_two_kinds_of_attention_the_figure_says_why():
    drawing = FIGURE.draw(tables(attentions=("eager",)))
    assert drawing.chart is None and drawing.reason == "No two timed runs differ only in attention."
