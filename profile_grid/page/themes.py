"""Colours of plotly's figures on a light and on a dark page; both lie on the page's own ground."""

from __future__ import annotations


def _theme(ink: str, lines: str, hover: str) -> dict:
    axis = {"gridcolor": lines, "linecolor": lines, "zerolinecolor": lines, "automargin": True}
    return {
        "layout": {
            "font": {"color": ink, "size": 12, "family": "system-ui, sans-serif"},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"bgcolor": hover, "bordercolor": lines, "font": {"color": ink}, "align": "left"},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": lines, "activecolor": ink},
            "uniformtext": {"minsize": 10, "mode": "hide"},
        }
    }  # fmt: skip


THEMES = {"light": _theme("#1d2127", "#dfe3e8", "#ffffff"), "dark": _theme("#e6e8eb", "#3a4048", "#22262c")}
