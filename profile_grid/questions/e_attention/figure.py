"""Figure of (e): the time of attention's parts beside their FLOPs."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, column, row
from profile_grid.figures.scales import Contexts, Log, Series
from profile_grid.figures.shown import leanest_runs, models_in_order, with_dimensions, without_figures, words
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import interval, significant
from profile_grid.questions.e_attention.table import PARTS, SOFTMAX
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL, keys_without
from profile_grid.study.stages import CAPTURE

SHOWN = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
PANEL_PX, GAP_PX, AXIS_PX = 140, 10, 62
MOST_COLUMNS = 5


def attention_parts(runs: pd.DataFrame, attention: pd.DataFrame) -> pd.DataFrame:
    """One row per part of attention of each configuration, of the run with the fewest phases that has them: time and
    FLOPs of a layer, and their ratios to both matrix multiplies."""
    inner = attention[attention["part"].isin(PARTS)]
    chosen = leanest_runs(runs[runs["run"].isin(inner["run"])])
    rows = with_dimensions(inner[inner["run"].isin(chosen["run"])], runs)
    return rows.sort_values("context_length", kind="stable", ignore_index=True)


def absent_cells(runs: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """The runs without figures of the configurations that `drawn` has no row of, each once: of the fewest phases."""
    keys = keys_without(MODE.key)
    present = set(drawn[keys].itertuples(index=False, name=None))
    missing = leanest_runs(without_figures(runs, CAPTURE))
    absent = [cell not in present for cell in missing[keys].itertuples(index=False, name=None)]
    return missing[pd.Series(absent, index=missing.index, dtype="bool")]


def draw_attention(tables: Tables) -> Drawing:
    """Per model a column: time per layer above and FLOPs per layer below, against context length, a line per part."""
    runs = tables["runs"]
    parts = attention_parts(runs, tables["attention"])
    missing = without_figures(runs, CAPTURE)
    if parts.empty:
        reason = f"No capture has {words(runs).kernels} in the ranges of attention's parts."
        return Drawing(reason=reason, notes=tuple(marks.missing_notes(missing)))
    series = Series("part", tuple(part for part in PARTS if part in set(parts["part"])))
    groups, left_out = split(runs[runs["run"].isin(parts["run"])], SHOWN)
    order = models_in_order(runs)

    def panels(group: Group) -> Spec:
        own = group.of(parts).drop(columns="mode")
        models = [model for model in order if model in set(own["model"])]
        lines = [models[start : start + MOST_COLUMNS] for start in range(0, len(models), MOST_COLUMNS)]
        time = f"{words(runs).time} per layer (µs)"
        return column(*[_two_rows(own, line, series, time) for line in lines], spacing=18)

    note = (
        "Mean of the captured steps of the forward pass. FLOPs from the shapes, every entry of the scores counted: "
        "scores and values 2·B·H·S²·d_head each (their dashed lines lie on each other), softmax 5·B·H·S², mask and "
        "scale B·H·S²."
    )
    return Drawing(stacked(groups, panels), (note, *left_out, *marks.missing_notes(absent_cells(runs, parts))))


def _two_rows(parts: pd.DataFrame, models: list[str], series: Series, time_title: str) -> Spec:
    """The panels of so many models side by side: times above, FLOPs below."""
    width = (WIDTH - AXIS_PX) // max(len(models), MOST_COLUMNS // 2 + 1) - GAP_PX
    time = Log.around(parts["gpu_time_per_layer_us"], PANEL_PX)
    flops = Log.around(parts["flops_per_layer"].dropna(), PANEL_PX)
    above, below = [], []
    for model in models:
        own, first = parts[parts["model"] == model], model == models[0]
        contexts = Contexts.of(parts["context_length"])
        upper = _panel(own, "gpu_time_per_layer_us", time, contexts.x(title=None), series, first and time_title)
        lower = _panel(own, "flops_per_layer", flops, contexts.x(title="context"), series, first and "FLOP per layer")
        above.append(upper.properties(title=marks.panel_title(model), width=width, height=PANEL_PX))
        below.append(lower.properties(width=width, height=PANEL_PX))
    return column(row(*above, spacing=GAP_PX), row(*below, spacing=GAP_PX), spacing=8)


def _panel(parts: pd.DataFrame, column: str, y: Log, x: alt.X, series: Series, title: str | bool) -> alt.LayerChart:
    axis = y.axis(title or None)
    axis.labels = axis.ticks = bool(title)
    base = alt.Chart(parts[parts[column].notna()]).encode(
        x=x, y=alt.Y(f"{column}:Q", scale=y.scale, axis=axis), color=series.color()
    )
    seen = marks.tooltip(
        parts, ("part", "part"), ("gpu_time_per_layer_us", "per layer (µs)", marks.DIGITS),
        ("flops_per_layer", "FLOP per layer", ".4~s"), ("flops_formula", "formula"),
    )  # fmt: skip
    line = base.mark_line(strokeDash=[4, 3] if column == "flops_per_layer" else [1, 0])
    return alt.layer(line, base.mark_point(filled=True).encode(shape=series.shape(), tooltip=seen))


def caption_attention(tables: Tables) -> str:
    """Softmax beside both matrix multiplies of attention: its time, and its FLOPs."""
    parts = attention_parts(tables["runs"], tables["attention"])
    softmax = parts[(parts["part"] == SOFTMAX) & parts["runtime_to_matmuls"].notna()]
    if softmax.empty:
        return f"No capture has {words(tables['runs']).kernels} in the ranges of softmax and both matrix multiplies."
    runtime, flops = (interval(softmax[f"{what}_to_matmuls"], _factor) for what in ("runtime", "flops"))
    return (
        f"Softmax takes {runtime} times as long as both matrix multiplies of attention, for {flops} times their FLOPs."
    )


def _factor(value: float) -> str:
    return significant(value, 2)


FIGURES = (
    Figure(
        "attention", "Parts of attention in the forward pass: time beside FLOPs", draw_attention, caption_attention,
        tables=("runs", "attention"),
    ),
)  # fmt: skip
