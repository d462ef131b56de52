"""Figures of time: phases by model and context, launch-bound or GPU-bound, and how time grows with size."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from profile_grid.figures import rows
from profile_grid.figures.style import (
    GREY,
    UNHAPPY,
    context_axis,
    framed,
    legend_below,
    log_axis,
    panels,
    series_style,
    without_data,
)
from profile_grid.tables.scaling import fitted_power_law

PHASE_TIMES = "Time of forward, backward and optimizer"
LAUNCH_BOUND = "Launch-bound or device-bound: wall time against the time in which the device works"
SCALING = "How the time of a step grows with parameters and with context"
PROFILED_SHIFT = 1.07


def phase_times(tables: dict[str, pd.DataFrame], machine: str) -> Figure:
    """One panel per phase: ms against context length, a line per model, profiled beside unprofiled with error bars."""
    runs = tables["runs"]
    times = rows.phase_times(runs, tables["timings"], tables["phases"])
    chosen = rows.fullest_runs(runs)
    unhappy = rows.unhappy_runs(chosen)
    if times.empty:
        return without_data(PHASE_TIMES, machine, "No run was measured to its end.", unhappy_notes(unhappy))
    phases = [phase for phase in rows.DRAWN_PHASES if phase in set(times["phase"])] or ["forward"]
    figure, (row,) = panels(len(phases), height_in=3.0, sharex=True)
    models = rows.models_in_order(runs)
    for axes, phase in zip(row, phases, strict=True):
        own = times[times["phase"] == phase]
        for position, model in enumerate(models):
            _draw_both(axes, own[own["model"] == model].sort_values("context_length"), model, series_style(position))
        _finish_times(axes, own, runs["context_length"], phase)
        mark_unhappy(axes, unhappy, models)
    row[0].set_ylabel("time (ms)")
    legend_below(figure, _model_handles(models) + _profiler_handles(), 8)
    return framed(figure, PHASE_TIMES, machine, _phase_time_notes(chosen, unhappy))


def _draw_both(axes: Axes, own: pd.DataFrame, model: str, style: dict) -> None:
    line = {**style, "linewidth": 1.0}
    axes.errorbar(own["context_length"], own["mean_ms"], yerr=own["std_ms"], label=model, **line)
    profiled = {**style, "linestyle": "none", "markerfacecolor": "white", "elinewidth": 0.8}
    axes.errorbar(own["context_length"] * PROFILED_SHIFT, own["profiled_ms"], yerr=own["profiled_std_ms"], **profiled)


def _finish_times(axes: Axes, own: pd.DataFrame, contexts: pd.Series, phase: str) -> None:
    values = own[["mean_ms", "profiled_ms"]].to_numpy().ravel()
    axes.set_title(phase)
    context_axis(axes, contexts)
    log_axis(axes.yaxis, values[np.isfinite(values)])


def _phase_time_notes(chosen: pd.DataFrame, unhappy: pd.DataFrame) -> list[str]:
    modes = [rows.MODE_NAMES[mode] for mode in rows.FULLEST_FIRST if mode in set(chosen["mode"])]
    return [
        f"Phases of one {' or '.join(modes)}. Filled: no profiler, mean ± standard deviation of the timed steps. "
        "Hollow, moved right: under the profiler, first kernel to last (wall time where no kernel was captured).",
        *unhappy_notes(unhappy),
    ]


def mark_unhappy(axes: Axes, unhappy: pd.DataFrame, models: list[str]) -> None:
    """A cross and the word for it at the foot of the axes for every run without figures, above its context length."""
    if unhappy.empty:
        return
    place = axes.get_xaxis_transform()
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom * (bottom / top) ** (0.05 + 0.06 * unhappy.groupby("context_length").size().max()), top)
    for context, cells in unhappy.groupby("context_length"):
        for height, (model, status) in enumerate(zip(cells["model"], cells["status"], strict=True)):
            color = series_style(models.index(model))["color"]
            y = 0.03 + 0.055 * height
            axes.plot(context, y, marker="x", color=color, transform=place, linestyle="none", zorder=5)
            text = f"{model}: {UNHAPPY.get(status, status)} "
            axes.text(context / 1.07, y, text, transform=place, ha="right", va="center", fontsize=6, color=color)


def unhappy_notes(unhappy: pd.DataFrame) -> list[str]:
    """A note that lists the runs without figures by their status."""
    return [
        f"{UNHAPPY.get(status, status)[0].upper()}{UNHAPPY.get(status, status)[1:]}: {', '.join(cells['run'])}."
        for status, cells in unhappy.groupby("status", sort=False)
    ]


def _model_handles(models: list[str], **changes) -> list[Line2D]:
    return [Line2D([], [], label=model, **{**series_style(n), **changes}) for n, model in enumerate(models)]


def _profiler_handles() -> list[Line2D]:
    style = {"marker": "o", "color": GREY, "linestyle": "none"}
    return [
        Line2D([], [], **style, label="without profiler"),
        Line2D([], [], **style, markerfacecolor="white", label="profiled"),
    ]


def launch_bound(tables: dict[str, pd.DataFrame], machine: str) -> Figure:
    """Wall time of a step against the time in which the GPU is busy, and that share against the length of a kernel."""
    busy = rows.busy_and_wall(tables["phases"])
    if busy.empty:
        reason = "No capture holds kernels, so how long the device was busy is not known."
        return without_data(LAUNCH_BOUND, machine, reason, unhappy_notes(rows.unhappy_runs(tables["runs"])))
    figure, ((left, right),) = panels(2, height_in=3.2)
    models = rows.models_in_order(tables["runs"])
    for position, model in enumerate(models):
        for mode, own in busy[busy["model"] == model].groupby("mode", sort=False):
            style = {**series_style(position), "linestyle": "none", "markerfacecolor": _mode_fill(mode, position)}
            left.plot(own["wall_ms"], own["busy_ms"], **style)
            right.plot(own["kernel_us"], 100 * own["busy_share"], **style)
    _finish_busy(left, busy)
    words = rows.words(tables["runs"])
    left.set(xlabel="wall time of a step (ms)", ylabel=f"{words.device} busy in a step (ms)")
    right.set(
        xlabel=f"mean length of a {words.kernel} (µs)", ylabel=f"{words.device} busy (% of wall time)", ylim=(0, 104)
    )
    log_axis(right.xaxis, busy["kernel_us"])
    legend_below(figure, _model_handles(models, linestyle="none"), 8)
    notes = [
        f"One marker per run, means of the captured steps. Below the diagonal the {words.device} waits: the program "
        f"issues {words.kernels} more slowly than they finish. White: forward pass; grey: forward + backward; filled: "
        "training step.",
        *unhappy_notes(rows.unhappy_runs(tables["runs"])),
    ]
    return framed(figure, LAUNCH_BOUND, machine, notes)


def _mode_fill(mode: str, position: int) -> str:
    return {"forward": "white", "forward_backward": "#c8c8c8"}.get(mode, series_style(position)["color"])


def _finish_busy(axes: Axes, busy: pd.DataFrame) -> None:
    values = pd.concat([busy["wall_ms"], busy["busy_ms"]])
    ends = np.array([values.min() / 1.5, values.max() * 1.5])
    for share, style in ((1.0, "-"), (0.5, "--"), (0.25, ":")):
        axes.plot(ends, share * ends, style, color=GREY, linewidth=0.8, zorder=1)
        axes.text(ends[1], share * ends[1], f" {share:.0%}", fontsize=6.5, color="#555555", va="center")
    log_axis(axes.xaxis, values)
    log_axis(axes.yaxis, values)


def scaling(tables: dict[str, pd.DataFrame], machine: str) -> Figure:
    """Per mode a row: the time of a step against parameters (a line per context) and context (a line per model)."""
    times = rows.step_times(tables["runs"], tables["timings"])
    modes = [mode for mode in rows.MODE_NAMES if mode in set(times["mode"])]
    if not modes:
        reason = "No run was timed to its end, so nothing can be fitted."
        return without_data(SCALING, machine, reason, unhappy_notes(rows.unhappy_runs(tables["runs"], ("timing",))))
    figure, grid = panels(2, len(modes), height_in=2.55)
    models = rows.models_in_order(tables["runs"])
    for (by_size, by_context), mode in zip(grid, modes, strict=True):
        own = times[times["mode"] == mode]
        _lines(by_size, own, "parameters", "context_length", sorted(own["context_length"].unique()), "context {}")
        _lines(by_context, own, "context_length", "model", [m for m in models if m in set(own["model"])], "{}")
        by_size.set(title=rows.MODE_NAMES[mode], xlabel="parameters", ylabel="time of a step (ms)")
        log_axis(by_size.xaxis, own["parameters"])
        context_axis(by_context, own["context_length"])
        for axes in (by_size, by_context):
            log_axis(axes.yaxis, own["mean_ms"])
            _room_for_legend(axes)
        failed = rows.unhappy_runs(tables["runs"], ("timing",))
        mark_unhappy(by_context, failed[failed["mode"] == mode], models)
    notes = [
        "Without a profiler, mean ± standard deviation. Lines: least-squares power laws through the measured points, "
        "exponent ± its standard error from the residuals; they say nothing on sizes that were not measured.",
        *unhappy_notes(rows.unhappy_runs(tables["runs"], ("timing",))),
    ]
    return framed(figure, SCALING, machine, notes)


def _room_for_legend(axes: Axes) -> None:
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top * (top / bottom) ** 0.5)


def _lines(axes: Axes, own: pd.DataFrame, x: str, by: str, groups: list, name: str) -> None:
    for position, group in enumerate(groups):
        points = own[own[by] == group].sort_values(x)
        style = series_style(position)
        law = fitted_power_law(points[x], points["mean_ms"])
        exponent = f"exponent {law.in_words()}" if law else "too few points"
        marks = {**style, "linestyle": "none"}
        label = f"{name.format(group)}: {exponent}"
        axes.errorbar(points[x], points["mean_ms"], yerr=points["std_ms"], label=label, **marks)
        if law:
            axes.plot(points[x], law.at(points[x]), color=style["color"], linestyle=style["linestyle"], linewidth=0.9)
    axes.legend(loc="upper left", fontsize=6, handlelength=1.2, labelspacing=0.25, borderaxespad=0.1)
