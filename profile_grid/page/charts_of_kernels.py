"""Interactive figures of kernels and of the parts of the model that they serve."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from profile_grid.figures import rows
from profile_grid.figures.kernels import KERNELS_DRAWN
from profile_grid.figures.style import GREY, family_style, in_drawing_order
from profile_grid.gpu_peaks import peaks_of
from profile_grid.page.marks import (
    PATTERNS,
    bar_marker,
    context_axes,
    line,
    marker,
    sized,
    text_of,
    unhappy_bars,
    wrapped,
)
from profile_grid.questions.e_attention.table import PARTS
from profile_grid.tables.classes import family

Tables = dict[str, pd.DataFrame]


def top_kernels(tables: Tables) -> go.Figure | None:
    """The longest kernels of the largest run, in the forward pass and in the step. None where nothing was measured."""
    runs, kernels = tables["runs"], tables["kernels"]
    run = rows.largest_run(runs)
    if run is None or kernels[kernels["run"] == run].empty:
        return None
    titles = ("forward pass", f"all of one {rows.MODE_NAMES[runs.set_index('run').loc[run, 'mode']]}")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.16)
    for column, phase in enumerate(("forward", None), 1):
        top = rows.top_kernels(kernels, run, phase, KERNELS_DRAWN)[::-1]
        ranks = [
            f"{rank}. {text_of(of_class)}" for rank, of_class in zip(range(len(top), 0, -1), top["class"], strict=True)
        ]
        bars = go.Bar(
            x=top["time_ms"], y=ranks, orientation="h", showlegend=False, marker=bar_marker(top["class"].map(family)),
            customdata=list(zip(top["kernel"].map(wrapped), top["share"], top["launches"], strict=True)),
            hovertemplate="%{x:.4g} ms, %{customdata[1]:.1%}, %{customdata[2]:,.0f} launches"
            "<br>%{customdata[0]}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(bars, row=1, col=column)
    figure.update_xaxes(title_text=f"{rows.words(runs).time} per step (ms)")
    return sized(figure, 420).update_layout(
        title={"text": text_of(run), "font": {"size": 12}, "x": 0, "y": 0.99, "yanchor": "top"}
    )


def class_shares(tables: Tables) -> go.Figure | None:
    """Stacked shares of the families, inference beside training. None where nothing was measured."""
    runs = tables["runs"]
    shares = rows.class_shares(runs, tables["class_shares"])
    if shares.empty:
        return None
    shares["cell"] = [f"{text_of(m)} {c}" for m, c in zip(shares["model"], shares["context_length"], strict=True)]
    sides = [side for side in rows.SIDES if len(rows.of_side(runs, side))]
    figure = make_subplots(1, len(sides), subplot_titles=sides, shared_yaxes=True, horizontal_spacing=0.04)
    in_legend: set[str] = set()
    for column, side in enumerate(sides, 1):
        of_side = rows.of_side(runs, side)
        half = shares[shares["run"].isin(of_side["run"])]
        for name in in_drawing_order(shares["family"]):
            own = half[half["family"] == name]
            if own.empty:
                continue
            color, hatch = family_style(name)
            bars = go.Bar(
                x=own["share"], y=own["cell"], orientation="h", name=text_of(name), legendgroup=name,
                showlegend=name not in in_legend,
                marker={"color": color, "pattern": {"shape": PATTERNS[hatch], "size": 5}},
                hovertemplate=f"%{{y}}: %{{x:.1%}} {text_of(name)}<extra></extra>",
            )  # fmt: skip
            in_legend.add(name)
            figure.add_trace(bars, row=1, col=column)
        figure.add_trace(unhappy_bars(rows.unhappy_runs(of_side)), row=1, col=column)
    order = [
        f"{text_of(m)} {c}" for m in rows.models_in_order(tables["runs"]) for c in sorted(set(shares["context_length"]))
    ]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1])
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_layout(barmode="stack", bargap=0.22)
    return sized(figure, 170 + 19 * shares["cell"].nunique())


def attention(tables: Tables) -> go.Figure | None:
    """Time and FLOPs per layer against context, a column per model. None where nothing was measured."""
    parts = rows.attention_parts(tables["attention"])
    if parts.empty:
        return None
    models = [model for model in rows.models_in_order(tables["runs"]) if model in set(parts["model"])]
    titles = [text_of(model) for model in models]
    figure = make_subplots(
        2, len(models), subplot_titles=titles, shared_xaxes=True, shared_yaxes=True, vertical_spacing=0.06
    )
    for column, model in enumerate(models, 1):
        for position, part in enumerate(PARTS):
            own = parts[(parts["model"] == model) & (parts["part"] == part)].sort_values("context_length")
            for row, value, unit in ((1, "gpu_time_per_layer_us", "µs"), (2, "flops_per_layer", "FLOP")):
                trace = go.Scatter(
                    x=own["context_length"], y=own[value], name=part, legendgroup=part, mode="lines+markers",
                    showlegend=row == 1 and column == 1, marker=marker(position), meta={"model": model},
                    line=line(position) | {"dash": "solid" if row == 1 else "dash"},
                    hovertemplate=f"{text_of(model)}, context %{{x}}<br>{part}: %{{y:.4s}} {unit} per layer"
                    "<extra></extra>",
                )  # fmt: skip
                figure.add_trace(trace, row=row, col=column)
    context_axes(figure, parts["context_length"])
    figure.update_xaxes(title_text="", row=1)
    figure.update_yaxes(type="log", dtick=1, exponentformat="SI")
    figure.update_yaxes(title_text="time per layer (µs)", row=1, col=1)
    figure.update_yaxes(title_text="FLOP per layer", row=2, col=1)
    return sized(figure, 560)


def roofline(tables: Tables) -> go.Figure | None:
    """FLOP/s against FLOP per byte by part of the model, and the peaks. None where nothing was measured."""
    points = rows.roofline(tables["runs"], tables["ranges"]).dropna(subset="flops")
    if points.empty:
        return None
    figure = go.Figure()
    for position, (part, own) in enumerate(points.groupby("part", sort=False)):
        for model, of_model in own.groupby("model", sort=False):
            trace = go.Scatter(
                x=of_model["flop_per_byte"], y=of_model["flop_per_s"], mode="markers", name=part, legendgroup=part,
                showlegend=model == own["model"].iloc[0], marker=marker(position), meta={"model": model},
                customdata=of_model[["context_length", "gpu_s", "bytes_per_s"]].assign(gpu_s=of_model["gpu_s"] * 1e3),
                hovertemplate=f"{part}, {text_of(model)}, context %{{customdata[0]}}"
                "<br>%{y:.4s}FLOP/s at %{x:.3g} FLOP/B"
                "<br>%{customdata[1]:.4g} ms per pass, at least %{customdata[2]:.3s}B/s<extra></extra>",
            )  # fmt: skip
            figure.add_trace(trace)
    _add_roof(figure, points)
    figure.update_xaxes(type="log", dtick=1, title_text="FLOP per byte, from the shapes")
    figure.update_yaxes(type="log", dtick="D2", title_text="FLOP/s reached", exponentformat="SI")
    return sized(figure, 470)


def _add_roof(figure: go.Figure, points: pd.DataFrame) -> None:
    peaks = peaks_of(points["device_name"].iloc[0])
    rate = peaks.flop_per_s(points["precision"].iloc[0]) if peaks else None
    if not (peaks and rate):
        return
    low, high = points["flop_per_byte"].min() / 3, points["flop_per_byte"].max() * 3
    x = sorted({low, min(max(rate / peaks.memory_bytes_per_s, low), high), high})
    y = [min(rate, value * peaks.memory_bytes_per_s) for value in x]
    figure.add_trace(
        go.Scatter(x=x, y=y, mode="lines", line={"color": GREY, "width": 2}, name="peak", hoverinfo="name+y")
    )
