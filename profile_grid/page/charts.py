"""The figures as the page holds them: what Vega-Lite reads, its data by column so that no key stands in every row."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from profile_grid.figures.drawing import Figure, Tables
from profile_grid.figures.layout import Spec
from profile_grid.figures.paper import specification

SIGNIFICANT = 6
MOST_BYTES = 700_000  # of one chart; a larger one is shown as an image only
IMAGE_ONLY = "There are too many points for a chart to point at: this is an image, and the tables have the numbers."


@dataclass(frozen=True)
class Shown:
    """One figure of the page. `chart` is None where there is nothing to draw, or too much of it."""

    title: str
    caption: str
    notes: tuple[str, ...]
    legend: tuple[str, ...]
    chart: Spec | None


def shown(figure: Figure, tables: Tables, left_out: list[str]) -> Shown:
    """The figure, drawn from the tables of one machine; `left_out` says what it leaves out."""
    drawing = figure.draw(tables)
    notes = tuple(note for note in (drawing.reason, *drawing.notes, *left_out) if note)
    chart = None if drawing.chart is None else compact(specification(drawing.chart))
    if chart is not None and len(json.dumps(chart)) > MOST_BYTES:
        chart, notes = None, (*notes, IMAGE_ONLY)
    return Shown(figure.title, figure.caption(tables), notes, drawing.legend, chart)


def compact(chart: Spec) -> Spec:
    """The chart with its data by column: {name: {"columns": [...], "rows": [[...], ...]}}."""
    return chart | {"datasets": {name: _by_column(rows) for name, rows in chart["datasets"].items()}}


def _by_column(rows: list[dict]) -> dict[str, list]:
    columns = list(rows[0]) if rows else []
    return {"columns": columns, "rows": [[_rounded(row[name]) for name in columns] for row in rows]}


def _rounded(value):
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    number = float(f"{value:.{SIGNIFICANT}g}")
    return int(number) if number.is_integer() else number
