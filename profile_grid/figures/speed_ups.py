"""The figure of a question about one dimension: how many times as fast each phase is than at the default."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.shown import models_in_order, without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import interval, ratio
from profile_grid.study.dimensions import MODE, Dimension
from profile_grid.study.stages import TIMING
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.names import MAIN_PHASES, WHOLE_STEP

HEIGHT_PX, AXIS_PX, GAP_PX, BESIDE_PX = 170, 60, 12, 9
PANELS = (WHOLE_STEP, *MAIN_PHASES)
SERIES = "value"


@dataclass(frozen=True)
class SpeedUps:
    """What is drawn: a dimension, the table of `times_beside_base` with its ratios, and the words for its default."""

    dimension: Dimension
    table: str
    base: str

    @property
    def no_pair(self) -> str:
        return f"No two timed runs differ in {self.dimension.heading} alone, with {self.base} as one of them."

    def figure(self, name: str, title: str) -> Figure:
        """The figure of this name."""
        return Figure(name, title, self.draw, self.caption, tables=("runs", self.table))

    def draw(self, tables: Tables) -> Drawing:
        """Per phase a panel: the speed-up against the model, a colour per value; a line at no gain."""
        runs, times = tables["runs"], tables[self.table]
        missing = without_figures(runs, TIMING)
        if times.empty:
            return Drawing(reason=self.no_pair, notes=tuple(marks.missing_notes(missing)))
        times = times.assign(**{SERIES: times[self.dimension.key].map(self.dimension.name_of)})
        names = sorted_values(times, self.dimension.key)
        series = Series(SERIES, tuple(self.dimension.name_of(name) for name in names))
        groups, left_out = split(runs[runs["run"].isin(times["run"])], ("model", self.dimension.key))
        order = models_in_order(runs)
        drawn = stacked(groups, lambda group: _panels(group, times, series, order, f"times as fast as {self.base}"))
        note = (
            f"Times without a profiler: {self.base} ÷ the other, ± the standard deviation of the ratio; grey: no gain."
        )
        return Drawing(drawn, (note, *left_out, *marks.missing_notes(missing)))

    def caption(self, tables: Tables) -> str:
        """The speed-ups of whole steps at each value, over all modes."""
        times, dimension = tables[self.table], self.dimension
        steps = times[times["phase"] == WHOLE_STEP]
        if steps.empty:
            return self.no_pair
        modes = " or ".join(name for mode, name in MODE.names.items() if mode in set(steps["mode"]))
        told = [
            f"{interval(steps[steps[dimension.key] == value]['speed_up'], ratio)} {dimension.words(value)}"
            for value in sorted_values(steps, dimension.key)
        ]
        return f"Beside {self.base} a {modes} is as fast as: {', '.join(told)}."


def _panels(group: Group, times: pd.DataFrame, series: Series, order: list[str], title: str) -> Spec:
    own = marks.with_ends(group.of(times), "speed_up", "speed_up_std", "speed_up")
    y = Log.around([1.0, *own[["speed_up", "speed_up_low", "speed_up_high"]].to_numpy().ravel()], HEIGHT_PX)
    phases = [phase for phase in PANELS if phase in set(own["phase"])]
    if len(phases) == 2:  # the step is its one phase
        phases = phases[:1]
    width = (WIDTH - AXIS_PX) // max(len(phases), 2) - GAP_PX
    models = [model for model in order if model in set(own["model"])]
    panels = [
        _panel(own[own["phase"] == phase], y, models, series, title if phase == phases[0] else None).properties(
            title=marks.panel_title(phase), width=width, height=HEIGHT_PX
        )
        for phase in phases
    ]
    return row(*panels, spacing=GAP_PX)


def _panel(ends: pd.DataFrame, y: Log, models: list[str], series: Series, title: str | None) -> alt.LayerChart:
    axis = y.axis(title)
    x = alt.X("model:N", scale=alt.Scale(domain=models), axis=marks.name_axis(labelAngle=-40))
    even = alt.Chart(pd.DataFrame({"speed_up": [1.0]})).mark_rule(color=GREY)
    layers = [even.encode(y=alt.Y("speed_up:Q", scale=y.scale, axis=axis))]
    for position, name in enumerate(series.names):
        own = ends[ends[SERIES] == name]
        beside = BESIDE_PX * (position - (len(series.names) - 1) / 2)
        base = alt.Chart(own).encode(x=x, color=series.color())
        seen = marks.tooltip(own, ("speed_up", "times as fast", marks.DIGITS), ("speed_up_std", "±", marks.DIGITS))
        low, middle = (alt.Y(f"{column}:Q", scale=y.scale, axis=axis) for column in ("speed_up_low", "speed_up"))
        layers += [
            base.mark_rule(xOffset=beside).encode(y=low, y2="speed_up_high"),
            base.mark_point(filled=True, xOffset=beside).encode(y=middle, shape=series.shape(), tooltip=seen),
        ]
    return alt.layer(*layers)
