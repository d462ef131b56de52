"""What the interactive figures share: names as text, markers and colours, axes, and marks for what has no figures."""

from __future__ import annotations

import html

import pandas as pd
import plotly.graph_objects as go

from profile_grid.figures.style import SERIES, UNHAPPY, family_style

SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
PATTERNS = {"": "", "///": "/", "xxx": "x", "...": ".", "\\\\\\": "\\"}
FAINT = "rgba(128,128,128,0.65)"
LEGEND_LINE_PX, LEGEND_PER_LINE = 22, 6


def text_of(name: object) -> str:
    """The name as text of plotly, which reads a few HTML tags in labels."""
    return html.escape(str(name), quote=False)


def wrapped(name: str, width: int = 90) -> str:
    """The whole name in lines, for a hover label."""
    pieces = [name[start : start + width] for start in range(0, len(name), width)]
    return "<br>".join(text_of(piece) for piece in pieces)


def marker(position: int, hollow: bool = False) -> dict:
    """The marker of one of several series."""
    symbol = SYMBOLS[position % len(SYMBOLS)] + ("-open" if hollow else "")
    return {"symbol": symbol, "size": 8, "color": _series_color(position)}


def line(position: int) -> dict:
    """The line of one of several series."""
    return {"color": _series_color(position), "width": 1.6}


def _series_color(position: int) -> str:
    color = SERIES[position % len(SERIES)]
    return "#7f7f7f" if color == "#000000" else color  # black is lost on a dark page


def bar_marker(families: pd.Series) -> dict:
    """Colour and pattern of each of several bars, by family of kernel classes."""
    styles = [family_style(name) for name in families]
    shapes = [PATTERNS[hatch] for _, hatch in styles]
    return {"color": [color for color, _ in styles], "pattern": {"shape": shapes, "size": 5}}


def sized(figure: go.Figure, height_px: int) -> go.Figure:
    """The figure so high, and higher by the lines of its legend, which stands under everything else."""
    entries = {trace.name for trace in figure.data if trace.showlegend is not False and trace.name}
    legend_px = LEGEND_LINE_PX * -(-len(entries) // LEGEND_PER_LINE)
    legend = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0}
    margin = {"l": 62, "r": 14, "t": 48, "b": 58 + legend_px}
    return figure.update_layout(height=height_px + legend_px, legend=legend, margin=margin)


def context_axes(figure: go.Figure, contexts: pd.Series, **where) -> None:
    """Logarithmic axes of context lengths, with a tick at each that was measured."""
    ticks = sorted({int(context) for context in contexts})
    figure.update_xaxes(
        type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks], title_text="context", **where
    )


def mark_unhappy(figure: go.Figure, unhappy: pd.DataFrame, values: pd.Series, row: int, column: int) -> None:
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


def legend_only(name: str, marker: dict) -> go.Scatter:
    """An entry of the legend that stands for a marker, without points."""
    return go.Scatter(x=[None], y=[None], mode="markers", name=name, legendgroup=name, marker=marker, hoverinfo="skip")


def unhappy_bars(unhappy: pd.DataFrame) -> go.Scatter:
    """A word in place of the bar of every run without figures."""
    cells = [f"{text_of(run.model)} {run.context_length}" for run in unhappy.itertuples(index=False)]
    words = [f"× {UNHAPPY.get(status, status)}" for status in unhappy["status"]]
    reasons = [text_of(reason or "") for reason in unhappy["reason"]]
    return go.Scatter(
        x=[0.01] * len(cells), y=cells, mode="text", text=words, hovertext=reasons, hoverinfo="text",
        textposition="middle right", showlegend=False, textfont={"size": 11},
    )  # fmt: skip
