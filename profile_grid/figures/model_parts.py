"""Figures of the model's parts: attention against context length, and the roofline."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from profile_grid.figures import rows
from profile_grid.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILLION,
    context_axis,
    framed,
    legend_below,
    log_axis,
    panels,
    series_style,
    without_data,
)
from profile_grid.figures.times import mark_unhappy, unhappy_notes
from profile_grid.gpu_peaks import Peaks, peaks_in_words, peaks_of
from profile_grid.quantities import known
from profile_grid.questions.e_attention.table import PARTS

ATTENTION = "Parts of attention in the forward pass: time beside FLOPs"
ROOFLINE = "Roofline of the forward pass by part of the model"
PART_STYLES = {
    part: {"color": color, "marker": marker}
    for part, color, marker in zip(PARTS, (BLUE, ORANGE, VERMILLION, GREEN), ("o", "D", "s", "^"), strict=True)
}


def attention(tables: dict[str, pd.DataFrame], machine: str) -> Figure:
    """Per model a column: time per layer above and FLOPs per layer below, against context length, a line per part."""
    parts = rows.attention_parts(tables["attention"])
    if parts.empty:
        reason = "No capture has kernels in the ranges of attention's parts."
        return without_data(ATTENTION, machine, reason, unhappy_notes(rows.unhappy_runs(tables["runs"])))
    all_models = rows.models_in_order(tables["runs"])
    models = [model for model in all_models if model in set(parts["model"])]
    absent = rows.unhappy_cells(tables["runs"], parts)
    figure, (above, below) = panels(len(models), 2, height_in=2.1, sharex=True, sharey="row")
    log_axis(above[0].yaxis, parts["gpu_time_per_layer_us"])
    log_axis(below[0].yaxis, parts["flops_per_layer"].dropna())
    for upper, lower, model in zip(above, below, models, strict=True):
        own = parts[parts["model"] == model].sort_values("context_length")
        for part, line in own.groupby("part", sort=False):
            upper.plot(line["context_length"], line["gpu_time_per_layer_us"], **PART_STYLES[part])
            lower.plot(line["context_length"], line["flops_per_layer"], **PART_STYLES[part], linestyle="--")
        upper.set_title(model)
        context_axis(lower, parts["context_length"])
        mark_unhappy(upper, absent[absent["model"] == model], all_models)
    above[0].set_ylabel(f"{rows.words(tables['runs']).time} per layer (µs)")
    below[0].set_ylabel("FLOP per layer")
    present = [part for part in PARTS if part in set(parts["part"])]
    handles = [Line2D([], [], label=part, **PART_STYLES[part]) for part in present]
    legend_below(figure, handles, len(present))
    notes = [
        "Mean of the captured steps of the forward pass. FLOPs from the shapes, every entry of the scores counted: "
        "scores and values 2·B·H·S²·d_head each (their dashed lines lie on each other), softmax 5·B·H·S², mask and "
        "scale B·H·S².",
        *unhappy_notes(absent),
    ]
    return framed(figure, ATTENTION, machine, notes)


def roofline(tables: dict[str, pd.DataFrame], machine: str) -> Figure:
    """FLOP/s against FLOP per byte for the parts whose FLOPs the shapes give, and bytes/s for all, with the peaks."""
    points = rows.roofline(tables["runs"], tables["ranges"])
    if points.empty:
        reason = "No run has both kernels by part of the model and FLOPs from its shapes."
        return without_data(ROOFLINE, machine, reason, unhappy_notes(rows.unhappy_runs(tables["runs"])))
    device, precision = points["device_name"].iloc[0], points["precision"].iloc[0]
    peaks = peaks_of(device)
    figure, ((left, right),) = panels(2, height_in=3.7, width_ratios=(1.25, 1))
    with_flops = points.dropna(subset="flops")
    models = rows.models_in_order(tables["runs"])
    parts = list(dict.fromkeys(with_flops["part"]))
    for point in with_flops.itertuples(index=False):
        style = {**series_style(parts.index(point.part)), "linestyle": "none"}
        size = 2.5 + 1.1 * models.index(point.model)
        left.plot(point.flop_per_byte, point.flop_per_s, **style, markersize=size, alpha=0.75, markeredgewidth=0)
    _finish_roof(left, with_flops, peaks, precision)
    _bandwidths(right, points, peaks)
    handles = [Line2D([], [], label=part, **{**series_style(n), "linestyle": "none"}) for n, part in enumerate(parts)]
    legend_below(figure, handles, 4)
    notes = [
        "One marker per model and context; larger markers are larger models. FLOPs are those of the matrix products "
        "and the softmax; bytes are the least that a part can move (each operand read once, each result written once), "
        "so a part that is split into many kernels lies lower than its kernels do.",
        peaks_in_words(device if known(device) else None, precision),
    ]
    return framed(figure, ROOFLINE, machine, notes)


def _finish_roof(axes: Axes, points: pd.DataFrame, peaks: Peaks | None, precision: str) -> None:
    rate = peaks.flop_per_s(precision) if peaks else None
    x = np.array([points["flop_per_byte"].min() / 3, points["flop_per_byte"].max() * 3])
    if peaks and rate:
        ridge = rate / peaks.memory_bytes_per_s
        corner = np.unique(np.clip([x[0], ridge, x[1]], *x))
        axes.plot(corner, np.minimum(rate, corner * peaks.memory_bytes_per_s), color="black", linewidth=1.1)
        axes.text(x[1], rate, f"{rate / 1e12:g} TFLOP/s", ha="right", va="bottom", fontsize=6.5)
    axes.set(xlabel="FLOP per byte, from the shapes", ylabel="FLOP/s reached", xlim=x)
    log_axis(axes.xaxis, x)
    log_axis(axes.yaxis, points["flop_per_s"])


def _bandwidths(axes: Axes, points: pd.DataFrame, peaks: Peaks | None) -> None:
    parts = list(dict.fromkeys(points["part"]))
    for y, part in enumerate(parts):
        own = points[points["part"] == part]["bytes_per_s"] / 1e9
        axes.plot([own.min(), own.max()], [y, y], color=GREY, linewidth=1)
        axes.plot(own, np.full(len(own), y), "o", color=BLUE, markersize=3, alpha=0.7)
    if peaks:
        peak_gb = peaks.memory_bytes_per_s / 1e9
        axes.axvline(peak_gb, color="black", linewidth=1.1)
        place = axes.get_xaxis_transform()
        axes.text(peak_gb, 1.01, f"{peak_gb:g} GB/s", ha="right", va="bottom", fontsize=6.5, transform=place)
    axes.set_yticks(range(len(parts)), parts)
    axes.set(xlabel="least bytes / measured time (GB/s)", ylim=(len(parts) - 0.5, -0.5))
    log_axis(axes.xaxis, points["bytes_per_s"] / 1e9)
