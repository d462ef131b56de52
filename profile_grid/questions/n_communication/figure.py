"""Figures of (n): the cost of communication in a step without a profiler, and all-reduce without other work."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import Frame
from profile_grid.figures.run_selection import labels, without_figures
from profile_grid.figures.scales import Series
from profile_grid.figures.theme import GROUND, WIDTH
from profile_grid.quantities import interval, percent
from profile_grid.questions.n_communication.all_reduce_figure import ALL_REDUCE
from profile_grid.questions.n_communication.timelines_figure import TIMELINES
from profile_grid.study.dimensions import GPUS, KEYS, PARALLEL
from profile_grid.study.stages import TIMING
from profile_grid.tables.evidence import UNTOLD
from profile_grid.tables.pivoting import sorted_values
from profile_grid.tables.wording import of_all

NAMES_PX, MAX_LINES = 310, 60
CLEAR = "clear"
NO_TIMES = "No run on several GPUs was timed with and without communication."


def costs(tables: Tables) -> pd.DataFrame:
    """One row per timed run, the most expensive first: `cost_share` of a step, `low` and `high` one standard deviation
    between steps from it, and `told`: whether it exceeds the differences between processes without communication."""
    times = tables["communication_times"]
    times = times[times["cost_share"].notna()].sort_values("cost_share", ascending=False, kind="stable")
    low, high = (
        (times["mean_ms"] + sign * times["std_ms"] - times["baseline_ms"]) / times["mean_ms"] for sign in (-1, 1)
    )
    clear = (times["verdict"] != UNTOLD).map({True: CLEAR, False: UNTOLD})
    return times.assign(bar=labels(times), low=low, high=high, told=clear)


def draw(tables: Tables) -> Drawing:
    """A line per run, the most expensive first."""
    runs, rows = tables["runs"], costs(tables)
    several = runs[pd.to_numeric(runs[GPUS.key]) > 1]
    series = Series("way", tuple(map(PARALLEL.name_of, sorted_values(rows, PARALLEL.key))))
    rows = rows.assign(way=rows[PARALLEL.key].map(PARALLEL.name_of))
    notes = [
        "A step without a profiler, ± the standard deviation between steps, compared with all runs of the same work"
        " without communication. Hollow: processes of the same work differ as much."
    ]
    if len(rows) > MAX_LINES:
        notes.append(f"The {MAX_LINES} most expensive of {len(rows)} runs are drawn; the table has all.")
    frame = Frame(KEYS, NO_TIMES)
    missing = without_figures(several, TIMING)
    return frame.drawing(rows.head(MAX_LINES), runs, missing, lambda data, _: _panel(data, series), notes)


def _panel(rows: pd.DataFrame, series: Series) -> alt.LayerChart:
    axis = alt.Axis(title="cost of communication (share of a step)", format="%")
    low, middle = (alt.X(f"{name}:Q", axis=axis) for name in ("low", "cost_share"))
    tooltip = marks.tooltip(
        rows, ("cost_share", "cost", marks.SHARE), ("cost_ms", "cost (ms)", marks.DIGITS),
        ("mean_ms", "step (ms)", marks.DIGITS),
    )  # fmt: skip
    base = alt.Chart(rows).encode(y=marks.bar_axis(list(rows["bar"])), color=series.color())
    nothing = alt.Chart(pd.DataFrame({"cost_share": [0.0]})).mark_rule(color=GREY).encode(x=middle)
    hollow = base.mark_point(strokeWidth=1.3, fill=GROUND).encode(x=middle, shape=series.shape(), tooltip=tooltip)
    filled = (
        base.transform_filter(alt.datum.told == CLEAR).mark_point(filled=True).encode(x=middle, shape=series.shape())
    )
    size = {"width": WIDTH - NAMES_PX, "height": alt.Step(marks.BAR_PX)}
    return alt.layer(nothing, base.mark_rule().encode(x=low, x2="high"), hollow, filled, **size)


def result(tables: Tables) -> str:
    """The clear costs, and the number of runs without one."""
    rows = costs(tables)
    clear = rows[rows["told"] == CLEAR]
    if rows.empty:
        return ""
    if clear.empty:
        return "No cost of communication is larger than the differences between processes"
    share = interval(clear["cost_share"], percent)
    elsewhere = f"; elsewhere it is {UNTOLD}" if len(clear) < len(rows) else ""
    return f"Communication costs {share} of a step in {of_all(len(clear), len(rows), 'run')}{elsewhere}"


FIGURES = (
    Figure(
        "communication", "Cost of communication by run, the most expensive first", draw, result,
        tables=("runs", "communication_times"),
    ),
    ALL_REDUCE,
    TIMELINES,
)  # fmt: skip
