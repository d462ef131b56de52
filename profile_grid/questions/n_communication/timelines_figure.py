"""The communication of one step of two runs on time axes, one above the other: one overlaps with computation most, the
other least."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import BLUE, PALE, VERMILLION
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import Frame
from profile_grid.figures.run_selection import labels, without_figures
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import percent
from profile_grid.study.dimensions import KEYS, OPTIMIZER, PARALLEL

NAMES_PX, LANE_PX = 200, 46
OVERLAPPED, EXPOSED = "overlapped", "exposed"
NO_PAIR = "No two runs that do the same work on several GPUs were captured."


def bars(tables: Tables) -> pd.DataFrame:
    """One row per collective, with the label of its run, and whether more than half of it was exposed."""
    rows = tables["communication_timelines"]
    is_exposed = rows["exposed_ms"] > (rows["end_ms"] - rows["start_ms"]) / 2
    return rows.assign(bar=labels(rows), kind=is_exposed.map({True: EXPOSED, False: OVERLAPPED}))


def draw(tables: Tables) -> Drawing:
    """A lane per run: its step, and each collective where it ran."""
    runs, rows = tables["runs"], bars(tables)
    notes = [
        "One captured step of rank 0 of each run, under the profiler. Pale: the step; what ran besides is not drawn."
    ]
    return Frame(KEYS, NO_PAIR).drawing(rows, runs, without_figures(runs.iloc[:0]), lambda data, _: _panel(data), notes)


def _panel(rows: pd.DataFrame) -> alt.LayerChart:
    names = list(dict.fromkeys(rows["bar"]))
    lanes = marks.bar_axis(names)
    axis = alt.Axis(title="time since the step began (ms)")
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
    return alt.layer(whole, collectives, width=WIDTH - NAMES_PX, height=alt.Step(LANE_PX))


def result(tables: Tables) -> str:
    """How much of the communication of each run was overlapped."""
    rows = bars(tables)
    texts = []
    for _, data in rows.groupby("run", sort=False):
        share = max(1 - data["exposed_ms"].sum() / (data["end_ms"] - data["start_ms"]).sum(), 0.0)  # but for rounding
        words = [key.words(data[key.key].iloc[0]) for key in (PARALLEL, OPTIMIZER)]
        is_usual = data[OPTIMIZER.key].iloc[0] == OPTIMIZER.default
        texts.append(f"{percent(share)} {words[0] if is_usual else ' '.join(words)}")
    return f"Communication is overlapped with computation: {', '.join(texts)}" if texts else ""


TIMELINES = Figure(
    "communication_timelines", "Communication in a step: least and most overlapped", draw, result,
    tables=("runs", "communication_timelines"),
)  # fmt: skip
