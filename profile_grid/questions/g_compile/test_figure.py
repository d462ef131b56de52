"""The figure of (g), drawn from a made-up grid that is compiled and not."""

import json

from profile_grid.figures.paper import on_paper
from profile_grid.questions.g_compile.figure import FIGURES
from tests.profile_grid.made_up_grid import made_up_tables

(FIGURE,) = FIGURES


def tables(**changes):
    return made_up_tables(models=("small", "large"), contexts=(512,), modes=("train_step",), **changes)


def test_every_speed_up_is_a_point_and_values_have_the_names_that_people_read():
    made = tables(compiles=("off", "on", "attention"))
    chart = json.dumps(on_paper(FIGURE, {name: made[name] for name in FIGURE.tables}))
    assert '"entire model"' in chart and '"only attention"' in chart and "times as fast as not compiled" in chart
    points = {(row["run"], row["phase"]) for rows in FIGURE.draw(made).chart["datasets"].values() for row in rows
              if "compile" in row}  # fmt: skip
    times = made["compile_times"][["run", "phase"]]
    assert points == set(times[times["phase"] != "loss"].itertuples(index=False, name=None))


def test_without_a_pair_the_figure_says_why():
    drawing = FIGURE.draw(tables())
    assert drawing.chart is None and drawing.reason.startswith("No two timed runs differ only in compile")
