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

PANEL_PX, SHARES_PX, NAMES_PX = 150, 100, 160
MAX_COLUMNS = 5


def attention_parts(runs: pd.DataFrame, attention: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and part of attention, in the order of contexts: time and FLOPs of a layer, and their
    ratios to both matrix multiplies. Of the runs of a configuration that have any part, the one with the fewest phases
    is taken."""
    inner = attention[attention["part"].isin(PARTS)]
    chosen = run_selection.leanest_runs(runs[runs["run"].isin(inner["run"])])
    rows = run_selection.with_dimensions(inner[inner["run"].isin(chosen["run"])], runs)
    return rows.sort_values("context_length", kind="stable", ignore_index=True)


def runs_without_rows(runs: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """The runs whose capture has no results, with `status` and `reason`: of each configuration without a row in `drawn`
    the one with the fewest phases."""
    keys = dimensions.keys_without(dimensions.MODE.key)
    missing = run_selection.leanest_runs(run_selection.runs_without_results(runs, stages.CAPTURE))
    return missing[~pd.MultiIndex.from_frame(missing[keys]).isin(pd.MultiIndex.from_frame(drawn[keys]))]


def draw_attention(tables: Tables) -> Drawing:
    """Time per layer, a line per part: a panel per model against context length; models with only one context share a
    panel per context. Below, each part's shares of time and FLOPs, markers for each configuration."""
    runs, terms = tables["runs"], run_selection.device_words(tables["runs"])
    parts = attention_parts(runs, tables["attention"])
    series = Series("part", tuple(part for part in PARTS if part in set(parts["part"])))
    order = run_selection.models_in_order(runs)

    def panel(rows: pd.DataFrame, _: pd.DataFrame) -> Spec:
        data = rows.drop(columns="mode")
        y = LogAxis.around(data["gpu_time_per_layer_us"], PANEL_PX)
        lengths = data.groupby("model")["context_length"].nunique()
        x_of_lines = ContextAxis.of(data["context_length"]).x(title="context")
        x_of_models = alt.X("model:N", sort=order, axis=alt.Axis(title="model", labelAngle=0))
        panels = [(model, data[data["model"] == model], x_of_lines) for model in order if lengths.get(model, 0) > 1]
        panels += [
            (dimensions.CONTEXT_LENGTH.title(length), rows, x_of_models)
            for length, rows in data[data["model"].map(lengths) == 1].groupby("context_length")
        ]
        times = {
            name: _times(rows, x, y, series, n % MAX_COLUMNS == 0 and terms.time, joined=x is x_of_lines)
            for n, (name, rows, x) in enumerate(panels)
        }
        lines = side_by_side(times, PANEL_PX, min(max(len(panels), 2), MAX_COLUMNS), one_axis=True)
        return column(lines, _shares(data, series, terms.time), spacing=16)

    notes = (
        "Mean of the captured steps of the forward pass. FLOPs from the shapes, every entry of the scores counted: "
        "scores and values 2·B·H·S²·d_head each, softmax 5·B·H·S², mask and scale B·H·S².",
    )
    frame = Frame(LEADING_KEYS, f"No capture has {terms.kernels} in the ranges of attention's parts.")
    return frame.drawing(parts, runs, runs_without_rows(runs, parts), panel, notes)


def _times(parts: pd.DataFrame, x: alt.X, y: LogAxis, series: Series, time: str | bool, joined: bool) -> alt.LayerChart:
    """The time per layer of each part. `time` is the name of that on the axis, which has no text if it is False."""
    axis = y.axis(f"{time} per layer (µs)" if time else None)
    axis.labels = axis.ticks = bool(time)
    y_of_times = alt.Y("gpu_time_per_layer_us:Q", scale=y.scale, axis=axis)
    base = alt.Chart(parts).encode(x=x, y=y_of_times, color=series.color())
    points = base.mark_point(filled=True).encode(shape=series.shape(), tooltip=_tooltip(parts))
    return alt.layer(*([base.mark_line()] if joined else []), points)


def _shares(parts: pd.DataFrame, series: Series, time: str) -> alt.LayerChart:
    """The shares of all parts, of time as filled markers and of FLOPs as hollow ones."""
    columns = {"time_share": "gpu_time_per_layer_us", "flops_share": "flops_per_layer"}
    rows = parts.assign(**{
        share: parts[column] / parts.groupby("run")[column].transform("sum") for share, column in columns.items()
    })  # fmt: skip
    y = alt.Y("part:N", scale=alt.Scale(type="point", domain=list(series.names), padding=0.5), axis=marks.name_axis())
    base = alt.Chart(rows).encode(y=y, color=series.color(), shape=series.shape(), tooltip=_tooltip(rows))
    title = f"share of attention's {time} (filled) and of its FLOPs (hollow)"
    of_time, of_flops = (
        alt.X(f"{share}:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title=title, format="%")) for share in columns
    )
    flops = base.mark_point(fill=GROUND, strokeWidth=1.3, size=70).encode(x=of_flops)
    size = {"width": WIDTH - NAMES_PX, "height": SHARES_PX}
    return alt.layer(flops, base.mark_point(filled=True, opacity=0.7).encode(x=of_time), **size)


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
