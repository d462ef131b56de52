"""Figures of (n): what communication costs a step, without a profiler; and all-reduce alone."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import Frame
from profile_grid.figures.scales import Series
from profile_grid.figures.shown import labels, without_figures
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import percent
from profile_grid.questions.n_communication.all_reduce_figure import ALL_REDUCE
from profile_grid.study.dimensions import GPUS, KEYS, PARALLEL
from profile_grid.study.stages import TIMING
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.wording import of_all

NAMES_PX, MAX_LINES = 310, 60
NO_TIMES = "No run on several GPUs was timed with and without communication."


def costs(tables: Tables) -> pd.DataFrame:
    """One row per timed run, the most expensive first: `cost_share` of a step with `low` and `high`, a standard
    deviation of the difference around it."""
    times = tables["communication_times"]
    times = times[times["cost_share"].notna()].sort_values("cost_share", ascending=False, kind="stable")
    spread = (times["std_ms"] ** 2 + times["without_std_ms"] ** 2) ** 0.5 / times["mean_ms"]
    return times.assign(bar=labels(times), low=times["cost_share"] - spread, high=times["cost_share"] + spread)


def draw(tables: Tables) -> Drawing:
    """A line per run, the most expensive first."""
    runs, rows = tables["runs"], costs(tables)
    several = runs[pd.to_numeric(runs[GPUS.key]) > 1]
    series = Series(PARALLEL.key, tuple(sorted_values(rows, PARALLEL.key)))
    notes = [
        "A step without a profiler compared with the same step without communication, ± a standard deviation of the"
        " difference. A cost below 0 is noise."
    ]
    if len(rows) > MAX_LINES:
        notes.append(f"The {MAX_LINES} most expensive of {len(rows)} runs are drawn; the table has all.")
    frame = Frame(KEYS, NO_TIMES)
    missing = without_figures(several, TIMING)
    return frame.drawing(rows.head(MAX_LINES), runs, missing, lambda own, _: _panel(own, series), notes)


def _panel(rows: pd.DataFrame, series: Series) -> alt.LayerChart:
    axis = alt.Axis(title="cost of communication (share of a step)", format="%")
    low, middle = (alt.X(f"{name}:Q", axis=axis) for name in ("low", "cost_share"))
    seen = marks.tooltip(
        rows, ("cost_share", "cost", marks.SHARE), ("cost_ms", "cost (ms)", marks.DIGITS),
        ("mean_ms", "step (ms)", marks.DIGITS),
    )  # fmt: skip
    base = alt.Chart(rows).encode(y=marks.bar_axis(list(rows["bar"])), color=series.color())
    nothing = alt.Chart(pd.DataFrame({"cost_share": [0.0]})).mark_rule(color=GREY).encode(x=middle)
    points = base.mark_point(filled=True).encode(x=middle, shape=series.shape(), tooltip=seen)
    size = {"width": WIDTH - NAMES_PX, "height": alt.Step(marks.BAR_PX)}
    return alt.layer(nothing, base.mark_rule().encode(x=low, x2="high"), points, **size)


def result(tables: Tables) -> str:
    """The largest cost, and in how many runs it cannot be told from none."""
    rows = costs(tables)
    if rows.empty:
        return ""
    noisy = (2 * rows["low"] - rows["cost_share"] < 0).sum()  # less than two standard deviations from 0
    most = f"Communication costs up to {percent(rows['cost_share'].max())} of a step"
    return f"{most}; it is within noise in {of_all(noisy, len(rows), 'run')}" if noisy else most


FIGURES = (
    Figure(
        "communication", "Cost of communication by run, the most expensive first", draw, result,
        tables=("runs", "communication_times"),
    ),
    ALL_REDUCE,
)  # fmt: skip
