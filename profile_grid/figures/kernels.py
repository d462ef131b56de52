"""Figures of kernels: shares of their classes in inference and training, and the kernels with the most time."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from profile_grid.figures import rows
from profile_grid.figures.style import (
    UNHAPPY,
    family_style,
    framed,
    in_drawing_order,
    legend_below,
    panels,
    without_data,
)
from profile_grid.figures.times import unhappy_notes
from profile_grid.quantities import count, percent, significant
from profile_grid.tables.classes import family

CLASS_SHARES = "Kernel classes as shares of the time of all kernels"
TOP_KERNELS = "The kernels that take most time"
KERNELS_DRAWN = 10
SMALLEST_LABEL = 0.06


def class_shares(tables: dict[str, pd.DataFrame], machine: str) -> Figure:
    """A stacked bar per model and context: the forward pass of inference on the left, training on the right."""
    shares = rows.class_shares(tables["runs"], tables["class_shares"])
    runs = tables["runs"]
    if shares.empty:
        reason = "No capture holds kernels, so their classes have no shares."
        return without_data(CLASS_SHARES, machine, reason, unhappy_notes(rows.unhappy_runs(runs)))
    sides = [side for side in rows.SIDES if len(rows.of_side(runs, side))]
    cells = _cells(runs)
    figure, (row,) = panels(len(sides), height_in=0.8 + 0.19 * len(cells), sharey=True)
    for axes, side in zip(row, sides, strict=True):
        own_runs = rows.of_side(runs, side)
        _stack(axes, shares[shares["run"].isin(own_runs["run"])], cells)
        _write_unhappy(axes, own_runs, cells)
        modes = [rows.MODE_NAMES[mode] for mode in rows.MODE_NAMES if mode in set(own_runs["mode"])]
        axes.set_title(f"{side} ({' / '.join(modes)})")
        axes.set(
            xlim=(0, 100), xlabel=f"share of the {rows.words(runs).time} of a step (%)", ylim=(len(cells) - 0.5, -0.5)
        )
        axes.grid(False, axis="y")
    row[0].set_yticks(range(len(cells)), [f"{model}  {context}" for model, context in cells])
    families = in_drawing_order(shares["family"])
    legend_below(figure, [_patch(name) for name in families], min(len(families), 7))
    notes = [
        f"{rows.words(runs).time} is the sum over {rows.words(runs).kernels} and memory operations; bars sum to 100 %.",
        *unhappy_notes(rows.unhappy_runs(runs)),
    ]
    return framed(figure, CLASS_SHARES, machine, notes)


def _patch(name: str) -> Patch:
    color, hatch = family_style(name)
    return Patch(facecolor=color, hatch=hatch, edgecolor="white", label=name)


def _cells(runs: pd.DataFrame) -> list[tuple[str, int]]:
    present = set(zip(runs["model"], runs["context_length"], strict=True))
    contexts = sorted(runs["context_length"].unique())
    return [(model, c) for model in rows.models_in_order(runs) for c in contexts if (model, c) in present]


def _stack(axes: Axes, shares: pd.DataFrame, cells: list[tuple[str, int]]) -> None:
    place = {cell: height for height, cell in enumerate(cells)}
    for _, bar in shares.groupby("run", sort=False):
        y = place[bar["model"].iloc[0], bar["context_length"].iloc[0]]
        share_of = bar.set_index("family")["share"]
        left = 0.0
        for name in in_drawing_order(bar["family"]):
            color, hatch = family_style(name)
            width = 100 * share_of[name]
            axes.barh(y, width, left=left, height=0.78, color=color, hatch=hatch, edgecolor="white", linewidth=0.4)
            if share_of[name] >= SMALLEST_LABEL:
                ink = "white" if name in ("gemm", "softmax", "normalization") else "black"
                axes.text(left + width / 2, y, f"{width:.0f}", ha="center", va="center", fontsize=5.8, color=ink)
            left += width


def _write_unhappy(axes: Axes, runs: pd.DataFrame, cells: list[tuple[str, int]]) -> None:
    place = {cell: height for height, cell in enumerate(cells)}
    for run in rows.unhappy_runs(runs).itertuples(index=False):
        y = place[run.model, run.context_length]
        axes.plot(1.5, y, marker="x", color="black", markersize=4, clip_on=False)
        axes.text(4, y, UNHAPPY.get(run.status, run.status), va="center", fontsize=6.5, style="italic")


def top_kernels(tables: dict[str, pd.DataFrame], machine: str, run: str | None = None) -> Figure:
    """The longest kernels of one run, by name: its forward pass on the left, its whole step on the right.

    The bars carry numbers, and the notes the full name behind each number: a cut name hides what tells kernels apart.
    """
    runs, kernels = tables["runs"], tables["kernels"]
    run = run or rows.largest_run(runs)
    own = [] if run is None else [rows.top_kernels(kernels, run, phase, KERNELS_DRAWN) for phase in ("forward", None)]
    if not own or own[1].empty:
        return without_data(TOP_KERNELS, machine, "No capture holds kernels.", unhappy_notes(rows.unhappy_runs(runs)))
    mode = runs.set_index("run").loc[run, "mode"]
    titles = ["forward pass", f"all of one {rows.MODE_NAMES[mode]}"]
    drawn = [(table, title) for table, title in zip(own, titles, strict=True) if len(table)]
    drawn = drawn[:1] if mode == "forward" and own[0]["total_ns"].sum() == own[1]["total_ns"].sum() else drawn
    numbers = {kernel: n for n, kernel in enumerate(dict.fromkeys(k for table, _ in drawn for k in table["kernel"]), 1)}
    figure, (row,) = panels(len(drawn), height_in=0.7 + 0.2 * max(len(table) for table, _ in drawn))
    for axes, (table, title) in zip(row, drawn, strict=True):
        _bars(axes, table, numbers)
        axes.set(title=title, xlabel=f"{rows.words(runs).time} per step (ms)")
    classes = dict(zip(kernels["kernel"], kernels["class"], strict=True))
    notes = [f"[{number}] {classes[kernel]}: {kernel}" for kernel, number in numbers.items()]
    return framed(figure, f"{TOP_KERNELS}: {run}", machine, notes, monospace=True)


def _bars(axes: Axes, table: pd.DataFrame, numbers: dict[str, int]) -> None:
    for y, kernel in enumerate(table.itertuples(index=False)):
        color, hatch = family_style(family(kernel[1]))
        axes.barh(y, kernel.time_ms, height=0.75, color=color, hatch=hatch, edgecolor="white", linewidth=0.4)
        text = f" {significant(kernel.time_ms)} ms, {percent(kernel.share)}, {count(kernel.launches)}×"
        axes.text(kernel.time_ms, y, text, va="center", fontsize=6)
    names = zip(table["kernel"], table["class"], strict=True)
    axes.set_yticks(range(len(table)), [f"[{numbers[name]}] {kernel_class}" for name, kernel_class in names])
    longest = max(table["time_ms"].max(), 1e-9)
    axes.set(ylim=(len(table) - 0.5, -0.5), xlim=(0, 1.85 * longest))
    axes.grid(False, axis="y")
