"""Figure of (h): time of a step against context length, a line per attention, and where memory ends."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.scales import Contexts, Log, Series
from profile_grid.figures.shown import without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import interval, ratio
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import ATTENTION, MODE
from profile_grid.study.stages import TIMING
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.ratios import compared

SHOWN = ("context_length", "mode", ATTENTION.key)
HEIGHT_PX, AXIS_PX = 230, 60
NO_TIMES = "No two timed runs differ in attention alone."


def draw_attention_times(tables: Tables) -> Drawing:
    """Per mode a panel: time of a step against context length, both logarithmic, a line per attention."""
    runs, times = tables["runs"], tables["attention_times"]
    steps = times[(times["phase"] == WHOLE_STEP) & times["mean_ms"].notna()]
    missing = without_figures(compared(runs, ATTENTION), TIMING)
    if steps.empty:
        return Drawing(reason=NO_TIMES, notes=tuple(marks.missing_notes(missing)))
    series = Series(ATTENTION.key, tuple(sorted_values(times, ATTENTION.key)))
    contexts = Contexts.of(times["context_length"])
    groups, left_out = split(runs[runs["run"].isin(times["run"])], SHOWN)

    def panels(group: Group) -> Spec:
        own, absent = group.of(steps), group.of(missing)
        modes = [mode for mode in MODE.values if mode in {*own["mode"], *absent["mode"]}]
        drawn = [
            _panel(own[own["mode"] == mode], absent[absent["mode"] == mode], contexts, series).properties(
                title=marks.panel_title(MODE.name_of(mode)), width=WIDTH // max(len(modes), 2) - AXIS_PX,
                height=HEIGHT_PX,
            )
            for mode in modes
        ]  # fmt: skip
        return row(*drawn, spacing=16)

    note = "Times without a profiler, ± the standard deviation between steps. eager: attention written out."
    return Drawing(stacked(groups, panels), (note, *left_out, *marks.missing_notes(missing)))


def _panel(steps: pd.DataFrame, missing: pd.DataFrame, contexts: Contexts, series: Series) -> alt.LayerChart:
    own = marks.with_ends(steps, "mean_ms", "std_ms", "mean")
    y = Log.around(own[["mean_low", "mean_ms", "mean_high"]].to_numpy("float64").ravel(), HEIGHT_PX)
    y = y.with_room(below_px=marks.room_px(missing))
    axis = y.axis("time of a step (ms)")
    base = alt.Chart(own).encode(x=contexts.x(), color=series.color())
    low, middle = (alt.Y(f"{name}:Q", scale=y.scale, axis=axis) for name in ("mean_low", "mean_ms"))
    seen = marks.tooltip(
        own, ("mean_ms", "time (ms)", marks.DIGITS), ("std_ms", "± (ms)", marks.DIGITS),
        ("speed_up", "times as fast as written out", marks.DIGITS),
    )  # fmt: skip
    layers = [
        base.mark_line().encode(y=middle, strokeDash=series.dash()),
        base.mark_rule().encode(y=low, y2="mean_high"),
        base.mark_point(filled=True).encode(y=middle, shape=series.shape(), tooltip=seen),
    ]
    return alt.layer(*layers, *marks.missing_marks(missing, contexts, y, series, named=ATTENTION.key))


def caption_attention_times(tables: Tables) -> str:
    """The speed-ups over written-out attention, and how many runs ended without figures."""
    times = tables["attention_times"]
    steps = times[(times["phase"] == WHOLE_STEP) & times["speed_up"].notna()]
    told = [
        f"{value} {interval(steps[steps[ATTENTION.key] == value]['speed_up'], ratio)}"
        for value in sorted_values(steps, ATTENTION.key)
    ]
    lacking = times[(times["phase"] == WHOLE_STEP) & (times["status"] != COMPLETE)]
    said = f"A step, times as fast as with attention written out: {', '.join(told)}." if told else NO_TIMES
    return f"{said} {marks.missing_count(lacking)}".strip()


FIGURES = (
    Figure(
        "attention_times", "Time of a step with every attention", draw_attention_times, caption_attention_times,
        tables=("runs", "attention_times"),
    ),
)  # fmt: skip
