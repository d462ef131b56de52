"""Figure of (e): the time of attention's parts, and their shares of its time and of its FLOPs."""

from functools import partial

import altair as alt
import pandas as pd

from profile_grid.figures import marks, run_selection
from profile_grid.figures.panels import Drawing, Figure, Frame, Spec, Tables, column, side_by_side
from profile_grid.figures.theme import GROUND, WIDTH, ContextAxis, LogAxis, Series
from profile_grid.quantities import interval, percent, significant
from profile_grid.questions.e_attention.table import PARTS, SOFTMAX
from profile_grid.study import dimensions, stages
from profile_grid.tables.gains import LEADING_KEYS

TIMES_HEIGHT_PX, SHARES_HEIGHT_PX = 150, 100
NAMES_WIDTH_PX = 160  # of the parts, left of their shares
MAX_PANELS_PER_LINE = 5


def attention_parts(runs: pd.DataFrame, attention: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and part of attention, in the order of contexts: time and FLOPs of a layer, and their
    ratios to those of both matrix multiplies. They are from the run with the fewest phases, of the configuration's runs
    that have any part."""
    inner = attention[attention["part"].isin(PARTS)]
    chosen = run_selection.leanest_runs(runs[runs["run"].isin(inner["run"])])
    rows = run_selection.with_dimensions(inner[inner["run"].isin(chosen["run"])], runs)
    return rows.sort_values("context_length", kind="stable", ignore_index=True)


def runs_without_rows(runs: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """Of each configuration without a row in `drawn`, the run without results of its capture, with `status` and
    `reason`. Of several such runs, it is the one with the fewest phases."""
    keys = dimensions.keys_without(dimensions.MODE.key)
    missing = run_selection.leanest_runs(run_selection.runs_without_results(runs, stages.CAPTURE))
    return missing[~pd.MultiIndex.from_frame(missing[keys]).isin(pd.MultiIndex.from_frame(drawn[keys]))]


def draw_attention(tables: Tables) -> Drawing:
    """Time per layer, with a line per part: a chart for each model against context length; models with only one context
    share a chart for each context. Below, each part's shares of time and FLOPs, with markers for each configuration."""
    runs, words = tables["runs"], run_selection.device_words(tables["runs"])
    parts = attention_parts(runs, tables["attention"])
    series = Series("part", tuple(part for part in PARTS if part in set(parts["part"])))
    models = run_selection.models_in_order(runs)

    def panel(panel_parts: pd.DataFrame, _: pd.DataFrame) -> Spec:
        panel_parts = panel_parts.drop(columns="mode")  # one mode per configuration: the page must not filter by it
        y = LogAxis.around(panel_parts["gpu_time_per_layer_us"], TIMES_HEIGHT_PX)
        length_counts = panel_parts.groupby("model")["context_length"].nunique()
        x_of_lengths = ContextAxis.of(panel_parts["context_length"]).x(title="context")
        x_of_models = alt.X("model:N", sort=models, axis=alt.Axis(title="model", labelAngle=0))
        charts = {}

        def add(name: str, rows: pd.DataFrame, x: alt.X, joined: bool) -> None:
            is_first_of_line = len(charts) % MAX_PANELS_PER_LINE == 0
            title = f"{words.time} per layer (µs)" if is_first_of_line else None
            charts[name] = _times(rows, x, y, series, title, joined=joined)

        for model in (model for model in models if length_counts.get(model, 0) > 1):
            add(model, panel_parts[panel_parts["model"] == model], x_of_lengths, joined=True)
        others = panel_parts[panel_parts["model"].map(length_counts) == 1]
        for length, rows in others.groupby("context_length"):
            add(dimensions.CONTEXT_LENGTH.title(length), rows, x_of_models, joined=False)
        per_line = min(max(len(charts), 2), MAX_PANELS_PER_LINE)
        times = side_by_side(charts, TIMES_HEIGHT_PX, per_line, one_axis=True)
        return column(times, _shares(panel_parts, series, words.time), spacing=16)

    notes = (
        "Mean of the captured steps of the forward pass. FLOPs from the shapes, every entry of the scores counted: "
        "scores and values 2·B·H·S²·d_head each, softmax 5·B·H·S², mask and scale B·H·S².",
    )
    frame = Frame(LEADING_KEYS, f"No capture has {words.kernels} in the ranges of attention's parts.")
    return frame.drawing(parts, runs, runs_without_rows(runs, parts), panel, notes)


def _times(
    parts: pd.DataFrame, x: alt.X, y: LogAxis, series: Series, title: str | None, *, joined: bool
) -> alt.LayerChart:
    """The time per layer of each part; if `joined`, with a line. Without a title, the axis has no text."""
    axis = y.axis(title)
    axis.labels = axis.ticks = title is not None
    y_of_times = alt.Y("gpu_time_per_layer_us:Q", scale=y.scale, axis=axis)
    base = alt.Chart(parts).encode(x=x, y=y_of_times, color=series.color())
    points = base.mark_point(filled=True).encode(shape=series.shape(), tooltip=_tooltip(parts))
    return alt.layer(*([base.mark_line()] if joined else []), points)


def _shares(parts: pd.DataFrame, series: Series, time: str) -> alt.LayerChart:
    """The shares of all parts, of time as filled markers and of FLOPs as hollow ones."""
    sums = parts.groupby("run")
    shares = parts.assign(
        time_share=parts["gpu_time_per_layer_us"] / sums["gpu_time_per_layer_us"].transform("sum"),
        flops_share=parts["flops_per_layer"] / sums["flops_per_layer"].transform("sum"),
    )
    y = alt.Y("part:N", scale=alt.Scale(type="point", domain=list(series.names), padding=0.5), axis=marks.name_axis())
    base = alt.Chart(shares).encode(y=y, color=series.color(), shape=series.shape(), tooltip=_tooltip(shares))
    axis = alt.Axis(title=f"share of attention's {time} (filled) and of its FLOPs (hollow)", format="%")
    scale = alt.Scale(domain=[0, 1])
    time_markers = base.mark_point(filled=True, opacity=0.7).encode(x=alt.X("time_share:Q", scale=scale, axis=axis))
    flops_markers = base.mark_point(fill=GROUND, strokeWidth=1.3, size=70)
    flops_markers = flops_markers.encode(x=alt.X("flops_share:Q", scale=scale, axis=axis))
    return alt.layer(flops_markers, time_markers, width=WIDTH - NAMES_WIDTH_PX, height=SHARES_HEIGHT_PX)


def _tooltip(parts: pd.DataFrame) -> list[alt.Tooltip]:
    return marks.tooltip(
        parts, ("part", "part"), ("gpu_time_per_layer_us", "per layer (µs)", marks.DIGITS),
        ("flops_per_layer", "FLOP per layer", ".4~s"), ("flops_formula", "formula"),
    )  # fmt: skip


def result_attention(tables: Tables) -> str:
    """Softmax compared with both matrix multiplies of attention: its time, and its FLOPs."""
    parts = attention_parts(tables["runs"], tables["attention"])
    softmax = parts[(parts["part"] == SOFTMAX) & parts["runtime_to_matmuls"].notna()]
    if softmax.empty:
        return ""
    runtime = interval(softmax["runtime_to_matmuls"], partial(significant, digits=2))
    flops = interval(softmax["flops_to_matmuls"], percent)
    return f"Softmax takes {runtime} times as long as both matrix multiplies of attention, with {flops} of their FLOPs"


FIGURES = (
    Figure(
        "attention", "Parts of attention in the forward pass: time per layer, and shares of time and of FLOPs",
        draw_attention, result_attention, tables=("runs", "attention"),
    ),
)  # fmt: skip
