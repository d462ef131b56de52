"""The interactive figures of the page, made with plotly from the rows of those on paper, with numbers on hover."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from profile_grid.page import charts_of_kernels, charts_of_time

CHARTS = {
    "phase_times": charts_of_time.phase_times,
    "launch_bound": charts_of_time.launch_bound,
    "top_kernels": charts_of_kernels.top_kernels,
    "class_shares": charts_of_kernels.class_shares,
    "attention": charts_of_kernels.attention,
    "scaling": charts_of_time.scaling,
    "roofline": charts_of_kernels.roofline,
}


def charts(tables: dict[str, pd.DataFrame]) -> dict[str, go.Figure]:
    """The figures by name, of one machine; a figure without data is left out: its place says why."""
    found = {name: draw(tables) for name, draw in CHARTS.items()}
    return {name: figure for name, figure in found.items() if figure is not None}
