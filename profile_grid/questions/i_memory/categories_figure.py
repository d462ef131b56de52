"""A stacked bar per run: what is live at the fullest moment of its step."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Tables
from profile_grid.figures.layout import Spec, alone
from profile_grid.figures.shown import models_in_order, without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import GROUND, SMALL, WIDTH
from profile_grid.quantities import interval, memory, percent
from profile_grid.questions.i_memory.style import ORDER, category_fill, unit_of
from profile_grid.study.dimensions import MODE
from profile_grid.study.stages import MEMORY

SHOWN = ("model", "context_length", "mode", "precision")
BAR_PX, LABELS_PX, MOST_BARS = 17, 250, 40
NO_FIGURES = "No run whose allocations were to be recorded has a whole history."


def draw(tables: Tables) -> Drawing:
    """Bars in the order of models, contexts and modes; the number behind each is the peak."""
    runs, peaks = tables["runs"], tables["memory_peak"]
    notes = tuple(marks.missing_notes(without_figures(runs, MEMORY)))
    if peaks.empty:
        return Drawing(reason=NO_FIGURES, notes=notes)
    unit, unit_name = unit_of(peaks["peak_bytes"].max())
    rows = _stacked(peaks, runs, unit)
    groups, left_out = split(runs[runs["run"].isin(rows["run"])], SHOWN)
    x = alt.X("start:Q", axis=alt.Axis(title=f"live at the fullest moment of a step ({unit_name})"))

    def panels(group: Group) -> Spec:
        own = group.of(rows)
        bars = list(dict.fromkeys(own["bar"]))[:MOST_BARS]
        return alone(_panel(own[own["bar"].isin(bars)], bars, x).properties(width=WIDTH - LABELS_PX))

    if (longest := max(len(group.runs) for group in groups)) > MOST_BARS:
        left_out = [*left_out, f"Of {longest} runs the first {MOST_BARS} are drawn; the table has all."]
    return Drawing(stacked(groups, panels), (*left_out, *notes))


def _stacked(peaks: pd.DataFrame, runs: pd.DataFrame, unit: int) -> pd.DataFrame:
    """The rows with where each part of a bar stands, `start` to `end` in the unit, and the name of the bar."""
    models = {model: position for position, model in enumerate(models_in_order(runs))}
    order = {one: position for position, one in enumerate(MODE.values)}
    ranked = peaks.assign(
        _model=peaks["model"].map(models), _mode=peaks["mode"].map(order), _category=peaks["category"].map(ORDER)
    )
    ranked = ranked.sort_values(["_model", "context_length", "_mode", "run", "_category"], kind="stable")
    end = ranked.groupby("run", sort=False)["bytes"].cumsum()
    bars = [
        f"{row.model} · {row.context_length} · {MODE.name_of(row.mode)} · {row.precision}"
        for row in ranked.itertuples()
    ]  # fmt: skip
    placed = ranked.assign(start=(end - ranked["bytes"]) / unit, end=end / unit, bar=bars)
    return placed[placed["bytes"] > 0].drop(columns=["_model", "_mode", "_category"])


def _panel(rows: pd.DataFrame, bars: list[str], x: alt.X) -> alt.LayerChart:
    place = {"x": x, "y": alt.Y("bar:N", scale=alt.Scale(domain=bars, paddingInner=0.22), axis=marks.name_axis())}
    shown = rows.assign(size=rows["bytes"].map(memory))
    seen = marks.tooltip(shown, ("category", "category"), ("size", "live"), ("share", "share", marks.SHARE))
    parts = alt.Chart(shown).mark_bar(stroke=GROUND, strokeWidth=0.5).encode(
        **place, x2="end", fill=category_fill(rows["category"]), tooltip=seen
    )  # fmt: skip
    last = rows.sort_values("end", kind="stable").drop_duplicates("run", keep="last")
    ends = last.assign(
        start=last["end"], text=[f"{memory(row.peak_bytes)}, in {row.fullest_phase}" for row in last.itertuples()]
    )
    behind = alt.Chart(ends).mark_text(align="left", dx=4, fontSize=SMALL).encode(**place, text="text:N")
    return alt.layer(parts, behind, height=alt.Step(BAR_PX))


def caption(tables: Tables) -> str:
    """The peaks, and the shares of activations where there are any."""
    peaks = tables["memory_peak"]
    if peaks.empty:
        return NO_FIGURES
    kept = peaks[(peaks["category"] == "activations") & (peaks["bytes"] > 0)]["share"]
    told = f"; activations are {interval(kept, percent)} of it where a backward pass follows" if len(kept) else ""
    return f"At its fullest moment a step needs {interval(peaks['peak_bytes'], memory)}{told}."
