"""Figure of (k): every step of a process, the first one included, beside the mean of the measured ones."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.shown import models_in_order, without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import SOFT, WIDTH
from profile_grid.quantities import interval, ratio
from profile_grid.questions.k_warmup.document import NOT_KEPT
from profile_grid.study.dimensions import MODE
from profile_grid.study.stages import TIMING
from profile_grid.tables.names import WHOLE_STEP

SHOWN = ("model", "context_length", "mode")
HEIGHT_PX, AXIS_PX, GAP_PX = 170, 62, 12


def draw(tables: Tables) -> Drawing:
    """Per mode a panel: time ÷ mean of the measured steps against the number of the step, a colour per model, a line
    per run."""
    runs, notes = tables["runs"], marks.missing_notes(without_figures(tables["runs"], TIMING))
    rows = every_step(tables)
    if rows.empty:
        return Drawing(reason=NOT_KEPT, notes=tuple(notes))
    series = Series("model", tuple(one for one in models_in_order(runs) if one in set(rows["model"])))
    groups, left_out = split(runs[runs["run"].isin(rows["run"])], SHOWN)
    y = Log.around([1.0, *rows["ratio"]], HEIGHT_PX)

    def panels(group: Group) -> Spec:
        own = group.of(rows)
        modes = [mode for mode in MODE.values if mode in set(own["mode"])]
        width = (WIDTH - AXIS_PX) // max(len(modes), 2) - GAP_PX
        drawn = [_panel(own[own["mode"] == mode].drop(columns="mode"), y, series, mode == modes[0]) for mode in modes]
        titled = [
            panel.properties(title=marks.panel_title(MODE.name_of(mode)), width=width, height=HEIGHT_PX)
            for mode, panel in zip(modes, drawn, strict=True)
        ]
        return row(*titled, spacing=GAP_PX)

    note = "A line per run; dashed: where the measured steps begin. Times without a profiler."
    return Drawing(stacked(groups, panels), (note, *left_out, *notes))


def every_step(tables: Tables) -> pd.DataFrame:
    """Warm-up and measured steps of every run that has both, numbered on: `number`, `ratio` to the measured mean."""
    warm, measured = (tables[name][tables[name]["phase"] == WHOLE_STEP] for name in ("warmup_steps", "steps"))
    mean, taken = measured.groupby("run")["ms"].mean(), warm.groupby("run")["step"].count()
    both = warm["run"].isin(mean.index), measured["run"].isin(taken.index)
    later = measured[both[1]].assign(number=measured["step"] + measured["run"].map(taken))
    rows = pd.concat([warm[both[0]].assign(number=warm["step"]), later], ignore_index=True)
    rows = rows.assign(ratio=rows["ms"] / rows["run"].map(mean), begins=rows["run"].map(taken) - 0.5)
    return rows.sort_values(["run", "number"], kind="stable", ignore_index=True)


def _panel(rows: pd.DataFrame, y: Log, series: Series, titled: bool) -> alt.LayerChart:
    axis = y.axis("time of a step ÷ mean of the measured" if titled else None)
    steps = alt.Axis(title="step", format="d", tickMinStep=1)
    place = {"x": alt.X("number:Q", axis=steps), "y": alt.Y("ratio:Q", scale=y.scale, axis=axis)}
    base = alt.Chart(rows).encode(**place, color=series.color(), detail="run:N")
    seen = marks.tooltip(rows, ("number", "step", "d"), ("ms", "ms", marks.DIGITS), ("ratio", "÷ mean", marks.DIGITS))
    begins = alt.Chart(rows.drop_duplicates("begins")[["begins"]]).mark_rule(color=SOFT, strokeDash=[2, 2])
    return alt.layer(
        begins.encode(x="begins:Q"), base.mark_line(opacity=0.6),
        base.mark_point(filled=True, size=18).encode(shape=series.shape(), tooltip=seen),
    )  # fmt: skip


def caption(tables: Tables) -> str:
    """How slow the first steps are."""
    rows = every_step(tables)
    if rows.empty:
        return NOT_KEPT
    first, second = (rows[rows["number"] == number]["ratio"] for number in (0, 1))
    second = f", the second {interval(second, ratio)}" if len(second) else ""
    return f"The first step takes {interval(first, ratio)} the time of a measured one{second}."


FIGURES = (
    Figure(
        "warmup", "Every step of a process, from the first", draw, caption, tables=("runs", "warmup_steps", "steps"),
    ),
)  # fmt: skip
