"""The interactive figures of the page, made with plotly from the rows of those on paper, with numbers on hover."""

from __future__ import annotations

import html
from collections.abc import Iterable

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from profile_grid.attention import PARTS
from profile_grid.figures import rows
from profile_grid.figures.kernels import KERNELS_DRAWN
from profile_grid.figures.style import GREY, SERIES, UNHAPPY, family_style, in_drawing_order, plain
from profile_grid.gpu_peaks import peaks_of
from profile_grid.scaling import fitted_power_law
from profile_grid.summary import family

Tables = dict[str, pd.DataFrame]
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
PATTERNS = {"": "", "///": "/", "xxx": "x", "...": ".", "\\\\\\": "\\"}
FAINT = "rgba(128,128,128,0.65)"
MODE_SYMBOLS = {"forward": "-open", "forward_backward": "-open-dot", "train_step": ""}
LEGEND_LINE_PX, LEGEND_PER_LINE = 22, 6
PARAMETER_TICKS = [digit * 10**power for power in range(5, 13) for digit in (1, 2, 5)]


def charts(tables: Tables) -> dict[str, go.Figure]:
    """The figures by name, of one machine; a figure without data is left out: its place says why."""
    found = {name: draw(tables) for name, draw in CHARTS.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def text_of(name: object) -> str:
    """The name as text of plotly, which reads a few HTML tags in labels."""
    return html.escape(str(name), quote=False)


def wrapped(name: str, width: int = 90) -> str:
    """The whole name in lines, for a hover label."""
    pieces = [name[start : start + width] for start in range(0, len(name), width)]
    return "<br>".join(text_of(piece) for piece in pieces)


def _phase_times(tables: Tables) -> go.Figure | None:
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
        _mark_unhappy(figure, unhappy, times[times["phase"] == phase]["mean_ms"], 1, column)
    _context_axes(figure, runs["context_length"])
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="time (ms)", col=1)
    return _sized(figure, 430)


def _phase_line(own: pd.DataFrame, model: str, position: int, profiled: bool, first: bool) -> go.Scatter:
    mean, std = ("profiled_ms", "profiled_std_ms") if profiled else ("mean_ms", "std_ms")
    how = "profiled" if profiled else "without profiler"
    name = text_of(model) + (" (profiled)" if profiled else "")
    return go.Scatter(
        x=own["context_length"], y=own[mean], error_y={"type": "data", "array": own[std], "thickness": 1}, name=name,
        mode="markers" if profiled else "lines+markers", legendgroup=name, showlegend=first, meta={"model": model},
        marker=_marker(position, hollow=profiled), line=_line(position),
        hovertemplate=f"{text_of(model)}, context %{{x}}, {how}<br>%{{y:.4g}} ± %{{error_y.array:.2g}} ms"
        "<extra></extra>",
    )  # fmt: skip


def _mark_unhappy(figure: go.Figure, unhappy: pd.DataFrame, values: pd.Series, row: int, column: int) -> None:
    """A cross per run without figures, below the values, above its context length."""
    if unhappy.empty or values.dropna().empty:
        return
    labels = [
        f"{text_of(run.model)}: {UNHAPPY.get(run.status, run.status)}<br>{text_of(run.reason or '')}"
        for run in unhappy.itertuples(index=False)
    ]
    trace = go.Scatter(
        x=unhappy["context_length"], y=[values.min() / 2] * len(unhappy), mode="markers+text", hovertext=labels,
        text=[label.split("<br>")[0] for label in labels],
        textposition="middle left", textfont={"size": 10}, showlegend=False, hoverinfo="text",
        marker={"symbol": "x-thin", "size": 9, "line": {"width": 2, "color": FAINT}},
    )  # fmt: skip
    figure.add_trace(trace, row=row, col=column)


def _launch_bound(tables: Tables) -> go.Figure | None:
    busy = rows.busy_and_wall(tables["phases"])
    if busy.empty:
        return None
    words = rows.words(tables["runs"])
    figure = make_subplots(1, 2, horizontal_spacing=0.09)
    for position, model in enumerate(rows.models_in_order(tables["runs"])):
        for mode, own in busy[busy["model"] == model].groupby("mode", sort=False):
            marker = _marker(position)
            shared = {
                "mode": "markers", "name": text_of(model), "legendgroup": text_of(model), "showlegend": False,
                "meta": {"model": model, "mode": mode},
                "marker": marker | {"symbol": marker["symbol"] + MODE_SYMBOLS[mode]},
                "customdata": own[["run", "wall_ms", "busy_ms", "kernels", "kernel_us", "busy_share"]].assign(
                    run=own["run"].map(text_of)
                ),
                "hovertemplate": "%{customdata[0]}<br>wall %{customdata[1]:.4g} ms, busy %{customdata[2]:.4g} ms"
                f" (%{{customdata[5]:.1%}})<br>%{{customdata[3]:,.0f}} {words.kernels} of %{{customdata[4]:.3g}} µs"
                "<extra></extra>",
            }  # fmt: skip
            figure.add_trace(go.Scatter(x=own["wall_ms"], y=own["busy_ms"], **shared), row=1, col=1)
            figure.add_trace(go.Scatter(x=own["kernel_us"], y=own["busy_share"], **shared), row=1, col=2)
        figure.add_trace(_legend_only(text_of(model), _marker(position)), row=1, col=1)
    for mode in [mode for mode in rows.MODE_NAMES if mode in set(busy["mode"])]:
        marker = {"color": GREY, "size": 8, "symbol": "circle" + MODE_SYMBOLS[mode]}
        figure.add_trace(_legend_only(rows.MODE_NAMES[mode], marker), row=1, col=1)
    ends = [busy["busy_ms"].min() / 1.5, busy["wall_ms"].max() * 1.5]
    diagonal = go.Scatter(x=ends, y=ends, mode="lines", line={"color": GREY, "width": 1}, name="always busy")
    figure.add_trace(diagonal, row=1, col=1)
    figure.update_xaxes(type="log", dtick=1, title_text="wall time of a step (ms)", row=1, col=1)
    figure.update_yaxes(type="log", dtick=1, title_text=f"{words.device} busy in a step (ms)", row=1, col=1)
    figure.update_xaxes(type="log", dtick="D2", title_text=f"mean length of a {words.kernel} (µs)", row=1, col=2)
    figure.update_yaxes(tickformat=".0%", range=[0, 1.03], title_text="busy share of wall time", row=1, col=2)
    return _sized(figure, 520)


def _legend_only(name: str, marker: dict) -> go.Scatter:
    return go.Scatter(x=[None], y=[None], mode="markers", name=name, legendgroup=name, marker=marker, hoverinfo="skip")


def _top_kernels(tables: Tables) -> go.Figure | None:
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
            x=top["time_ms"], y=ranks, orientation="h", showlegend=False, marker=_bar_marker(top["class"].map(family)),
            customdata=list(zip(top["kernel"].map(wrapped), top["share"], top["launches"], strict=True)),
            hovertemplate="%{x:.4g} ms, %{customdata[1]:.1%}, %{customdata[2]:,.0f} launches"
            "<br>%{customdata[0]}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(bars, row=1, col=column)
    figure.update_xaxes(title_text=f"{rows.words(runs).time} per step (ms)")
    return _sized(figure, 420).update_layout(
        title={"text": text_of(run), "font": {"size": 12}, "x": 0, "y": 0.99, "yanchor": "top"}
    )


def _class_shares(tables: Tables) -> go.Figure | None:
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
        figure.add_trace(_unhappy_bars(rows.unhappy_runs(of_side)), row=1, col=column)
    order = [
        f"{text_of(m)} {c}" for m in rows.models_in_order(tables["runs"]) for c in sorted(set(shares["context_length"]))
    ]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1])
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_layout(barmode="stack", bargap=0.22)
    return _sized(figure, 170 + 19 * shares["cell"].nunique())


def _unhappy_bars(unhappy: pd.DataFrame) -> go.Scatter:
    """A word in place of the bar of every run without figures."""
    cells = [f"{text_of(run.model)} {run.context_length}" for run in unhappy.itertuples(index=False)]
    words = [f"× {UNHAPPY.get(status, status)}" for status in unhappy["status"]]
    reasons = [text_of(reason or "") for reason in unhappy["reason"]]
    return go.Scatter(
        x=[0.01] * len(cells), y=cells, mode="text", text=words, hovertext=reasons, hoverinfo="text",
        textposition="middle right", showlegend=False, textfont={"size": 11},
    )  # fmt: skip


def _attention(tables: Tables) -> go.Figure | None:
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
                    showlegend=row == 1 and column == 1, marker=_marker(position), meta={"model": model},
                    line=_line(position) | {"dash": "solid" if row == 1 else "dash"},
                    hovertemplate=f"{text_of(model)}, context %{{x}}<br>{part}: %{{y:.4s}} {unit} per layer"
                    "<extra></extra>",
                )  # fmt: skip
                figure.add_trace(trace, row=row, col=column)
    _context_axes(figure, parts["context_length"])
    figure.update_xaxes(title_text="", row=1)
    figure.update_yaxes(type="log", dtick=1, exponentformat="SI")
    figure.update_yaxes(title_text="time per layer (µs)", row=1, col=1)
    figure.update_yaxes(title_text="FLOP per layer", row=2, col=1)
    return _sized(figure, 560)


def _scaling(tables: Tables) -> go.Figure | None:
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
    _context_axes(figure, times["context_length"], col=2)
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="time of a step (ms)", col=1)
    return _sized(figure, 90 + 260 * len(modes))


def _law(points: pd.DataFrame, x: str, by: str, group: object, position: int) -> Iterable[go.Scatter]:
    law = fitted_power_law(points[x], points["mean_ms"])
    name = f"context {group}" if by == "context_length" else text_of(group)
    exponent = f"exponent {law.in_words()}" if law else "too few points for an exponent"
    error = {"type": "data", "array": points["std_ms"], "thickness": 1}
    hover = f"{name}: %{{y:.4g}} ± %{{error_y.array:.2g}} ms at %{{x:.4s}}<br>{exponent}<extra></extra>"
    shared = {"x": points[x], "name": name}
    yield go.Scatter(
        **shared, y=points["mean_ms"], error_y=error, mode="markers", marker=_marker(position), hovertemplate=hover
    )
    if law:
        yield go.Scatter(**shared, y=law.at(points[x]), mode="lines", line=_line(position), hoverinfo="skip")


def _roofline(tables: Tables) -> go.Figure | None:
    points = rows.roofline(tables["runs"], tables["ranges"]).dropna(subset="flops")
    if points.empty:
        return None
    figure = go.Figure()
    for position, (part, own) in enumerate(points.groupby("part", sort=False)):
        for model, of_model in own.groupby("model", sort=False):
            trace = go.Scatter(
                x=of_model["flop_per_byte"], y=of_model["flop_per_s"], mode="markers", name=part, legendgroup=part,
                showlegend=model == own["model"].iloc[0], marker=_marker(position), meta={"model": model},
                customdata=of_model[["context_length", "gpu_s", "bytes_per_s"]].assign(gpu_s=of_model["gpu_s"] * 1e3),
                hovertemplate=f"{part}, {text_of(model)}, context %{{customdata[0]}}"
                "<br>%{y:.4s}FLOP/s at %{x:.3g} FLOP/B"
                "<br>%{customdata[1]:.4g} ms per pass, at least %{customdata[2]:.3s}B/s<extra></extra>",
            )  # fmt: skip
            figure.add_trace(trace)
    _add_roof(figure, points)
    figure.update_xaxes(type="log", dtick=1, title_text="FLOP per byte, from the shapes")
    figure.update_yaxes(type="log", dtick="D2", title_text="FLOP/s reached", exponentformat="SI")
    return _sized(figure, 470)


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


def _context_axes(figure: go.Figure, contexts: pd.Series, **where) -> None:
    ticks = sorted({int(context) for context in contexts})
    figure.update_xaxes(
        type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks], title_text="context", **where
    )


def _marker(position: int, hollow: bool = False) -> dict:
    symbol = SYMBOLS[position % len(SYMBOLS)] + ("-open" if hollow else "")
    return {"symbol": symbol, "size": 8, "color": _series_color(position)}


def _line(position: int) -> dict:
    return {"color": _series_color(position), "width": 1.6}


def _series_color(position: int) -> str:
    color = SERIES[position % len(SERIES)]
    return "#7f7f7f" if color == "#000000" else color  # black is lost on a dark page


def _bar_marker(families: pd.Series) -> dict:
    styles = [family_style(name) for name in families]
    shapes = [PATTERNS[hatch] for _, hatch in styles]
    return {"color": [color for color, _ in styles], "pattern": {"shape": shapes, "size": 5}}


def _sized(figure: go.Figure, height_px: int) -> go.Figure:
    """The figure so high, and higher by the lines of its legend, which stands under everything else."""
    entries = {trace.name for trace in figure.data if trace.showlegend is not False and trace.name}
    legend_px = LEGEND_LINE_PX * -(-len(entries) // LEGEND_PER_LINE)
    legend = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0}
    margin = {"l": 62, "r": 14, "t": 48, "b": 58 + legend_px}
    return figure.update_layout(height=height_px + legend_px, legend=legend, margin=margin)


CHARTS = {
    "phase_times": _phase_times,
    "launch_bound": _launch_bound,
    "top_kernels": _top_kernels,
    "class_shares": _class_shares,
    "attention": _attention,
    "scaling": _scaling,
    "roofline": _roofline,
}
