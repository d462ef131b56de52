"""Interactive figures of time: phases, launch-bound or not, and how time grows with size."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from profile_grid.figures import rows
from profile_grid.figures.style import GREY, plain
from profile_grid.page.marks import context_axes, legend_only, line, mark_unhappy, marker, sized, text_of
from profile_grid.tables.scaling import fitted_power_law

Tables = dict[str, pd.DataFrame]
MODE_SYMBOLS = {"forward": "-open", "forward_backward": "-open-dot", "train_step": ""}
PARAMETER_TICKS = [digit * 10**power for power in range(5, 13) for digit in (1, 2, 5)]


def phase_times(tables: Tables) -> go.Figure | None:
    """One panel per phase: ms against context, profiled and not. None where nothing was measured."""
    runs = tables["runs"]
    times = rows.phase_times(runs, tables["timings"], tables["phases"])
    phases = [phase for phase in rows.DRAWN_PHASES if phase in set(times["phase"])]
    if not phases:
        return None
    figure = make_subplots(1, len(phases), subplot_titles=phases, horizontal_spacing=0.07)
    for column, phase in enumerate(phases, 1):
        for position, model in enumerate(rows.models_in_order(runs)):
            own = times[(times["phase"] == phase) & (times["model"] == model)].sort_values("context_length")
            for profiled in (False, True):
                trace = _phase_line(own, model, position, profiled, first=column == 1)
                figure.add_trace(trace, row=1, col=column)
        unhappy = rows.unhappy_runs(rows.fullest_runs(runs))
        mark_unhappy(figure, unhappy, times[times["phase"] == phase]["mean_ms"], 1, column)
    context_axes(figure, runs["context_length"])
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="time (ms)", col=1)
    return sized(figure, 430)


def _phase_line(own: pd.DataFrame, model: str, position: int, profiled: bool, first: bool) -> go.Scatter:
    mean, std = ("profiled_ms", "profiled_std_ms") if profiled else ("mean_ms", "std_ms")
    how = "profiled" if profiled else "without profiler"
    name = text_of(model) + (" (profiled)" if profiled else "")
    return go.Scatter(
        x=own["context_length"], y=own[mean], error_y={"type": "data", "array": own[std], "thickness": 1}, name=name,
        mode="markers" if profiled else "lines+markers", legendgroup=name, showlegend=first, meta={"model": model},
        marker=marker(position, hollow=profiled), line=line(position),
        hovertemplate=f"{text_of(model)}, context %{{x}}, {how}<br>%{{y:.4g}} ± %{{error_y.array:.2g}} ms"
        "<extra></extra>",
    )  # fmt: skip


def launch_bound(tables: Tables) -> go.Figure | None:
    """Wall time against busy time, busy share against kernel length. None if nothing was measured."""
    busy = rows.busy_and_wall(tables["phases"])
    if busy.empty:
        return None
    words = rows.words(tables["runs"])
    figure = make_subplots(1, 2, horizontal_spacing=0.09)
    for position, model in enumerate(rows.models_in_order(tables["runs"])):
        for mode, own in busy[busy["model"] == model].groupby("mode", sort=False):
            filled = marker(position)
            shared = {
                "mode": "markers", "name": text_of(model), "legendgroup": text_of(model), "showlegend": False,
                "meta": {"model": model, "mode": mode},
                "marker": filled | {"symbol": filled["symbol"] + MODE_SYMBOLS[mode]},
                "customdata": own[["run", "wall_ms", "busy_ms", "kernels", "kernel_us", "busy_share"]].assign(
                    run=own["run"].map(text_of)
                ),
                "hovertemplate": "%{customdata[0]}<br>wall %{customdata[1]:.4g} ms, busy %{customdata[2]:.4g} ms"
                f" (%{{customdata[5]:.1%}})<br>%{{customdata[3]:,.0f}} {words.kernels} of %{{customdata[4]:.3g}} µs"
                "<extra></extra>",
            }  # fmt: skip
            figure.add_trace(go.Scatter(x=own["wall_ms"], y=own["busy_ms"], **shared), row=1, col=1)
            figure.add_trace(go.Scatter(x=own["kernel_us"], y=own["busy_share"], **shared), row=1, col=2)
        figure.add_trace(legend_only(text_of(model), marker(position)), row=1, col=1)
    for mode in [mode for mode in rows.MODE_NAMES if mode in set(busy["mode"])]:
        grey = {"color": GREY, "size": 8, "symbol": "circle" + MODE_SYMBOLS[mode]}
        figure.add_trace(legend_only(rows.MODE_NAMES[mode], grey), row=1, col=1)
    ends = [busy["busy_ms"].min() / 1.5, busy["wall_ms"].max() * 1.5]
    diagonal = go.Scatter(x=ends, y=ends, mode="lines", line={"color": GREY, "width": 1}, name="always busy")
    figure.add_trace(diagonal, row=1, col=1)
    figure.update_xaxes(type="log", dtick=1, title_text="wall time of a step (ms)", row=1, col=1)
    figure.update_yaxes(type="log", dtick=1, title_text=f"{words.device} busy in a step (ms)", row=1, col=1)
    figure.update_xaxes(type="log", dtick="D2", title_text=f"mean length of a {words.kernel} (µs)", row=1, col=2)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03], title_text="busy share of wall time", row=1, col=2)
    return sized(figure, 520)


def scaling(tables: Tables) -> go.Figure | None:
    """Per mode: time against parameters and against context, with fitted power laws. None if nothing was measured."""
    times = rows.step_times(tables["runs"], tables["timings"])
    modes = [mode for mode in rows.MODE_NAMES if mode in set(times["mode"])]
    if not modes:
        return None
    titles = [title for mode in modes for title in (rows.MODE_NAMES[mode], "")]
    figure = make_subplots(len(modes), 2, subplot_titles=titles, horizontal_spacing=0.09, vertical_spacing=0.15)
    models = rows.models_in_order(tables["runs"])
    for row, mode in enumerate(modes, 1):
        own = times[times["mode"] == mode]
        for x, by, groups, column in (
            ("parameters", "context_length", sorted(own["context_length"].unique()), 1),
            ("context_length", "model", [model for model in models if model in set(own["model"])], 2),
        ):
            for position, group in enumerate(groups):
                points = own[own[by] == group].sort_values(x)
                for trace in _law(points, x, by, group, position):
                    trace.update(meta={"mode": mode, by: str(group)}, showlegend=row == 1 and trace.mode == "markers")
                    figure.add_trace(trace, row=row, col=column)
    sizes = [size for size in PARAMETER_TICKS if times["parameters"].min() / 2 < size < times["parameters"].max() * 2]
    ticks = {"tickvals": sizes, "ticktext": [plain(size) for size in sizes]}
    figure.update_xaxes(type="log", title_text="parameters", **ticks, col=1)
    context_axes(figure, times["context_length"], col=2)
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="time of a step (ms)", col=1)
    return sized(figure, 90 + 260 * len(modes))


def _law(points: pd.DataFrame, x: str, by: str, group: object, position: int) -> Iterable[go.Scatter]:
    law = fitted_power_law(points[x], points["mean_ms"])
    name = f"context {group}" if by == "context_length" else text_of(group)
    exponent = f"exponent {law.in_words()}" if law else "too few points for an exponent"
    error = {"type": "data", "array": points["std_ms"], "thickness": 1}
    hover = f"{name}: %{{y:.4g}} ± %{{error_y.array:.2g}} ms at %{{x:.4s}}<br>{exponent}<extra></extra>"
    shared = {"x": points[x], "name": name}
    yield go.Scatter(
        **shared, y=points["mean_ms"], error_y=error, mode="markers", marker=marker(position), hovertemplate=hover
    )
    if law:
        yield go.Scatter(**shared, y=law.at(points[x]), mode="lines", line=line(position), hoverinfo="skip")
