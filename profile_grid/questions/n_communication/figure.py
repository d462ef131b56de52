"""Figure of (n): a bar per run and rank, of what fills a captured step."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.page.colors import BLUE, ORANGE, PALE, VERMILLION
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, alone
from profile_grid.figures.scales import legend
from profile_grid.figures.shown import without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import GROUND, SMALL, WIDTH, fill
from profile_grid.quantities import interval, percent, significant
from profile_grid.questions.n_communication.all_reduce_figure import ALL_REDUCE
from profile_grid.questions.n_communication.table import PARTS, communication_of_steps
from profile_grid.study.dimensions import BATCH_SIZE, CONTEXT_LENGTH, GPUS, MODEL, PARALLEL
from profile_grid.study.stages import CAPTURE

SHOWN = (MODEL.key, CONTEXT_LENGTH.key, BATCH_SIZE.key, GPUS.key, PARALLEL.key)
BAR_PX, LABELS_PX, MOST_BARS = 17, 250, 60
NO_FIGURES = "No run on several GPUs has whole captures."
STYLES = {
    "compute": (BLUE, 0),
    "exposed communication": (VERMILLION, 2),
    "exposed memory": (ORANGE, 0),
    "idle": (PALE, 0),
}


def bars(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per bar and part: `start` to `end` in milliseconds, `part`, and the name of the bar."""
    names = [
        f"{row.model} · {row.context_length} · batch {row.batch_size} · {row.gpus} × {row.parallel}, rank {row.rank}"
        for row in steps.itertuples()
    ]
    named = steps.assign(bar=names)
    parts, begin = [], pd.Series(0.0, index=steps.index)
    for part in PARTS:
        end = begin + named[f"{part}_ms"]
        parts.append(named.assign(part=part.replace("_", " "), start=begin, end=end, ms=named[f"{part}_ms"]))
        begin = end
    return pd.concat(parts, ignore_index=True)


def draw(tables: Tables) -> Drawing:
    """Bars in the order of the runs; the number behind each is the part of communication that computation covers. Where
    there are too many, of each run the rank that the others wait for: it waits least itself."""
    runs, steps = tables["runs"], communication_of_steps(tables["communication_steps"])
    several = runs[pd.to_numeric(runs[GPUS.key]) > 1]
    notes = tuple(marks.missing_notes(without_figures(several, CAPTURE)))
    if steps.empty:
        return Drawing(reason=NO_FIGURES, notes=notes)
    groups, left_out = split(several[several["run"].isin(steps["run"])], SHOWN)

    if max(len(group.of(steps)) for group in groups) > MOST_BARS:
        steps = steps.loc[steps.groupby("run", sort=False)["waiting_ms"].idxmin()]
        left_out = [*left_out, "Of each run the rank is drawn that the others wait for; the table has all."]
    if (most := max(len(group.of(steps)) for group in groups)) > MOST_BARS:
        left_out = [*left_out, f"Of {most} bars the first {MOST_BARS} are drawn; the table has all."]

    def panels(group: Group) -> Spec:
        return alone(_panel(group.of(steps).head(MOST_BARS)).properties(width=WIDTH - LABELS_PX))

    note = "Under the profiler, means of the captured steps; behind each bar the part of communication that overlaps."
    return Drawing(stacked(groups, panels), (note, *left_out, *notes))


def _panel(steps: pd.DataFrame) -> alt.LayerChart:
    rows = bars(steps)
    x = alt.X("start:Q", axis=alt.Axis(title="a step (ms)"))
    y = alt.Y("bar:N", scale=alt.Scale(domain=list(rows["bar"].unique()), paddingInner=0.22), axis=marks.name_axis())
    scale = alt.Scale(domain=list(STYLES), range=[fill(*style) for style in STYLES.values()])
    fills = alt.Fill("part:N", scale=scale, legend=legend(list(STYLES), symbolSize=marks.BAR_SYMBOL))
    seen = marks.tooltip(rows, ("part", "part"), ("ms", "ms", marks.DIGITS))
    drawn = (
        alt.Chart(rows).mark_bar(stroke=GROUND, strokeWidth=0.5).encode(x=x, y=y, x2="end", fill=fills, tooltip=seen)
    )
    last = rows[rows["part"] == "idle"]
    texts = last.assign(start=last["end"], text=[f"overlap {percent(overlap)}" for overlap in last["overlap"]])
    behind = alt.Chart(texts).mark_text(align="left", dx=4, fontSize=SMALL).encode(x=x, y=y, text="text:N")
    return alt.layer(drawn, behind, height=alt.Step(BAR_PX))


def caption(tables: Tables) -> str:
    """Exposed communication as a part of a step, and how much overlaps."""
    steps = communication_of_steps(tables["communication_steps"])
    if steps.empty:
        return NO_FIGURES
    exposed = interval(steps["exposed_share"], percent)
    longest = significant(steps["communication_ms"].max())
    return (
        f"Exposed communication is {exposed} of a step; {interval(steps['overlap'], percent)} of communication, at most"
        f" {longest} ms, runs beside computation."
    )


FIGURES = (
    Figure("communication", "What fills a step on every GPU", draw, caption, tables=("runs", "communication_steps")),
    ALL_REDUCE,
)
