"""Figures of (n): the cost of communication by run, and communication of two steps."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import BLUE, GREY, PALE, VERMILLION
from profile_grid.figures import marks
from profile_grid.figures.panels import Drawing, Figure, Frame, Tables, notes_on_cut
from profile_grid.figures.run_selection import labels, runs_without_results
from profile_grid.figures.theme import GROUND, WIDTH, Series
from profile_grid.quantities import interval, percent
from profile_grid.study import stages
from profile_grid.study.dimensions import GPUS, KEYS, PARALLEL
from profile_grid.tables import evidence, pivoting, wording

MAX_GROUPS = 12  # of runs that do the same work
NAMES_PX, WAY_PX, GROUP_PX = 300, 9, 10  # width of the names of groups; height of a line, and of the gap between groups
CLEAR = "clear"  # in `clarity`, where other costs are evidence.UNCLEAR
NO_TIMES = "No run on several GPUs was timed with and without communication."


def costs(tables: Tables) -> pd.DataFrame:
    """One row per run with a known cost, the most expensive first. `bar` names its work. `low` and `high` are below and
    above its `cost_share` of a step, each by one standard deviation between processes without communication.
    `clarity` says whether the cost is clear."""
    times = tables["communication_times"]
    times = times[times["cost_share"].notna()].sort_values("cost_share", ascending=False, kind="stable")
    spread = times["baseline_spread"].fillna(0.0) * times["baseline_ms"] / times["mean_ms"]
    low, high = (times["cost_share"] + sign * spread for sign in (-1, 1))
    clarity = (times["verdict"] != evidence.UNCLEAR).map({True: CLEAR, False: evidence.UNCLEAR})
    return times.assign(bar=labels(times.drop(columns=PARALLEL.key)), low=low, high=high, clarity=clarity)


def draw_costs(tables: Tables) -> Drawing:
    """A group of lines per work, the most expensive first; in it a line per way to reduce gradients."""
    runs, rows = tables["runs"], costs(tables)
    runs_on_several = runs[pd.to_numeric(runs[GPUS.key]) > 1]
    names = tuple(map(PARALLEL.name_of, pivoting.sorted_values(rows, PARALLEL.key)))
    series = Series("way", names, width_px=WIDTH - NAMES_PX)
    rows = rows.assign(way=rows[PARALLEL.key].map(PARALLEL.name_of))
    groups = list(dict.fromkeys(rows["bar"]))
    notes = [
        "A step without a profiler compared with the processes that do the same work without communication, ± their"
        " standard deviation. Hollow: the cost may be a difference between processes.",
        *notes_on_cut(len(groups), MAX_GROUPS, "The {most} most expensive of {number} groups", "all runs"),
    ]
    drawn_rows = rows[rows["bar"].isin(groups[:MAX_GROUPS])]
    missing = runs_without_results(runs_on_several, stages.TIMING)
    return Frame(KEYS, NO_TIMES).drawing(drawn_rows, runs, missing, lambda data, _: _cost_panel(data, series), notes)


def _cost_panel(rows: pd.DataFrame, series: Series) -> alt.LayerChart:
    """A marker per row of `costs`, hollow if the cost is unclear, with a line from `low` to `high`; a rule at 0."""
    axis = alt.Axis(title="cost of communication (share of a step)", format="%")
    low, middle = (alt.X(f"{name}:Q", axis=axis) for name in ("low", "cost_share"))
    tooltip = marks.tooltip(
        rows, ("cost_share", "cost", marks.SHARE), ("cost_ms", "cost (ms)", marks.DIGITS),
        ("mean_ms", "step (ms)", marks.DIGITS),
    )  # fmt: skip
    groups = list(dict.fromkeys(rows["bar"]))
    ways = alt.YOffset("way:N", scale=alt.Scale(domain=list(series.names)))
    base = alt.Chart(rows).encode(y=marks.bar_axis(groups), yOffset=ways, color=series.color())
    zero = alt.Chart(pd.DataFrame({"cost_share": [0.0]})).mark_rule(color=GREY).encode(x=middle)
    hollow = base.mark_point(strokeWidth=1.3, fill=GROUND).encode(x=middle, shape=series.shape(), tooltip=tooltip)
    clear = base.transform_filter(alt.datum.clarity == CLEAR)
    filled = clear.mark_point(filled=True).encode(x=middle, shape=series.shape())
    size = {"width": WIDTH - NAMES_PX, "height": len(groups) * (len(series.names) * WAY_PX + GROUP_PX)}
    return alt.layer(zero, base.mark_rule().encode(x=low, x2="high"), hollow, filled, **size)


def result_costs(tables: Tables) -> str:
    """The clear costs, and in how many runs there is one."""
    rows = costs(tables)
    clear = rows[rows["clarity"] == CLEAR]
    if clear.empty:
        return "No cost of communication is larger than the differences between processes"
    share = interval(clear["cost_share"], percent)
    elsewhere = "; in the others, its cost is unclear" if len(clear) < len(rows) else ""
    return f"Communication costs {share} of a step in {wording.of_all(len(clear), len(rows), 'run')}{elsewhere}"


LANE_NAMES_PX, LANE_PX = 200, 46  # width of the names of lanes, height of a lane
OVERLAPPED, EXPOSED = "overlapped", "exposed"
NO_PAIR = "No two runs that do the same work on several GPUs were captured."


def collectives_drawn(tables: Tables) -> pd.DataFrame:
    """One row per collective, with the label of its run, and whether more than half of it was exposed."""
    rows = tables["communication_timelines"]
    is_exposed = rows["exposed_ms"] > (rows["end_ms"] - rows["start_ms"]) / 2
    return rows.assign(bar=labels(rows), kind=is_exposed.map({True: EXPOSED, False: OVERLAPPED}))


def draw_timelines(tables: Tables) -> Drawing:
    """A lane per run: its step, and each collective where it ran."""
    runs, rows = tables["runs"], collectives_drawn(tables)
    notes = ["One captured step of rank 0 of each run, under the profiler. Pale: the step; computation is not drawn."]
    nothing = runs_without_results(runs.iloc[:0])
    return Frame(KEYS, NO_PAIR).drawing(rows, runs, nothing, lambda data, _: _timeline_lanes(data), notes)


def _timeline_lanes(rows: pd.DataFrame) -> alt.LayerChart:
    lanes = marks.bar_axis(list(dict.fromkeys(rows["bar"])))
    axis = alt.Axis(title="time since the step began (ms)", labelFlush=False)
    steps = alt.Chart(rows.drop_duplicates("run").assign(begin=0.0)).mark_bar(color=PALE, height=LANE_PX - 10)
    tooltip = marks.tooltip(
        rows, ("operation", "operation"), ("start_ms", "start (ms)", marks.DIGITS),
        ("end_ms", "end (ms)", marks.DIGITS), ("exposed_ms", "exposed (ms)", marks.DIGITS),
    )  # fmt: skip
    color = alt.Color("kind:N", title=None, scale=alt.Scale(domain=[EXPOSED, OVERLAPPED], range=[VERMILLION, BLUE]))
    collectives = alt.Chart(rows).mark_bar(height=LANE_PX - 22).encode(
        x=alt.X("start_ms:Q", axis=axis), x2="end_ms:Q", y=lanes, color=color, tooltip=tooltip
    )  # fmt: skip
    whole = steps.encode(x=alt.X("begin:Q", axis=axis), x2="step_ms:Q", y=lanes)
    return alt.layer(whole, collectives, width=WIDTH - LANE_NAMES_PX, height=alt.Step(LANE_PX))


def result_timelines(tables: Tables) -> str:
    """How much of the communication of each run was overlapped."""
    texts = []
    for _, collectives in collectives_drawn(tables).groupby("run", sort=False):
        total_ms = (collectives["end_ms"] - collectives["start_ms"]).sum()
        share = max(1 - collectives["exposed_ms"].sum() / total_ms, 0.0)  # below 0 only by rounding
        run = collectives.iloc[0]
        texts.append(f"{percent(share)} {PARALLEL.words(run[PARALLEL.key])}")
    return f"Computation overlaps this share of communication: {', '.join(texts)}" if texts else ""


FIGURES = (
    Figure(
        "communication", "Cost of communication by work and way to reduce gradients, the most expensive first",
        draw_costs, result_costs,
        tables=("runs", "communication_times"),
    ),
    Figure(
        "communication_timelines", "Communication in a step: least and most overlapped", draw_timelines,
        result_timelines, tables=("runs", "communication_timelines"),
    ),
)  # fmt: skip
