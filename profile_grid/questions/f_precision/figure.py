"""Figure of (f): how many times as fast each phase is in a lower precision."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.shown import models_in_order, without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import GREY, WIDTH
from profile_grid.quantities import interval, ratio
from profile_grid.study.dimensions import MODE, PRECISION
from profile_grid.study.stages import TIMING
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.names import MAIN_PHASES, WHOLE_STEP

SHOWN = ("model", "precision")
HEIGHT_PX, AXIS_PX, GAP_PX = 170, 60, 12
PANELS = (WHOLE_STEP, *MAIN_PHASES)


def draw_precision(tables: Tables) -> Drawing:
    """Per phase a panel: the speed-up over fp32 against the model, a colour per precision; a line at no gain."""
    runs, times = tables["runs"], tables["precision_times"]
    missing = without_figures(runs, TIMING)
    if times.empty:
        reason = "No two timed runs differ in precision alone, with fp32 as one of them."
        return Drawing(reason=reason, notes=tuple(marks.missing_notes(missing)))
    series = Series("precision", tuple(sorted_values(times, PRECISION.key)))
    groups, left_out = split(runs[runs["run"].isin(times["run"])], SHOWN)
    order = models_in_order(runs)

    def panels(group: Group) -> Spec:
        own = marks.with_ends(group.of(times), "speed_up", "speed_up_std", "speed_up")
        y = Log.around([1.0, *own[["speed_up", "speed_up_low", "speed_up_high"]].to_numpy().ravel()], HEIGHT_PX)
        phases = [phase for phase in PANELS if phase in set(own["phase"])]
        if len(phases) == 2:  # the step is its one phase
            phases = phases[:1]
        width = (WIDTH - AXIS_PX) // max(len(phases), 2) - GAP_PX
        models = [model for model in order if model in set(own["model"])]
        drawn = [_panel(own[own["phase"] == phase], y, models, series, phase == phases[0]) for phase in phases]
        titled = [
            panel.properties(title=marks.panel_title(phase), width=width, height=HEIGHT_PX)
            for phase, panel in zip(phases, drawn, strict=True)
        ]
        return row(*titled, spacing=GAP_PX)

    note = "Times without a profiler: fp32 ÷ the other precision, ± the standard deviation of the ratio; grey: no gain."
    return Drawing(stacked(groups, panels), (note, *left_out, *marks.missing_notes(missing)))


def _panel(ends: pd.DataFrame, y: Log, models: list[str], series: Series, titled: bool) -> alt.LayerChart:
    axis = y.axis("times as fast as fp32" if titled else None)
    x = alt.X("model:N", scale=alt.Scale(domain=models), axis=marks.name_axis(labelAngle=-40))
    base = alt.Chart(ends).encode(x=x, color=series.color())
    seen = marks.tooltip(ends, ("speed_up", "times as fast", marks.DIGITS), ("speed_up_std", "±", marks.DIGITS))
    even = alt.Chart(pd.DataFrame({"speed_up": [1.0]})).mark_rule(color=GREY)
    return alt.layer(
        even.encode(y=alt.Y("speed_up:Q", scale=y.scale, axis=axis)),
        base.mark_rule().encode(y=alt.Y("speed_up_low:Q", scale=y.scale, axis=axis), y2="speed_up_high"),
        base.mark_point(filled=True).encode(
            y=alt.Y("speed_up:Q", scale=y.scale, axis=axis), shape=series.shape(), tooltip=seen
        ),
    )


def caption_precision(tables: Tables) -> str:
    """The speed-ups of whole steps in each precision, over all modes."""
    times = tables["precision_times"]
    steps = times[times["phase"] == WHOLE_STEP]
    if steps.empty:
        return "No two timed runs differ in precision alone, with fp32 as one of them."
    modes = " or ".join(name for mode, name in MODE.names.items() if mode in set(steps["mode"]))
    told = [
        f"{interval(steps[steps['precision'] == name]['speed_up'], ratio)} in {name}"
        for name in sorted_values(steps, PRECISION.key)
    ]
    return f"Beside fp32 a {modes} is as fast as: {', '.join(told)}."


FIGURES = (
    Figure(
        "precision", "Speed-up over fp32 by phase", draw_precision, caption_precision,
        tables=("runs", "precision_times"),
    ),
)  # fmt: skip
