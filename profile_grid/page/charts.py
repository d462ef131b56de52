"""The figures of the page: Vega-Lite specifications whose data are rows without keys, which are much shorter."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_tables.page.markup import for_script
from profile_grid.figures.panels import Figure, Spec, Tables
from profile_grid.figures.paper import specification
from profile_grid.page.tables import names_that_fit, rounded

MAX_CHART_BYTES, MAX_IMAGE_BYTES = 1_500_000, 1_900_000  # of all figures together


@dataclass(frozen=True)
class PageFigure:
    title: str  # the result, or without one the quantity that is drawn
    quantity: str  # what is drawn, unless that is the title
    notes: tuple[str, ...]
    legend: tuple[str, ...]  # shown on request
    chart: str | None  # the Vega-Lite specification as JSON; None without a chart, or without room for it
    image: bytes | None  # the PNG file; None without one, or without room for it


def page_figures(
    figures: Mapping[str, Figure], tables: Tables, images: dict[str, bytes], left_out: list[str]
) -> dict[str, PageFigure]:
    """These figures by name, from the tables of one machine; `left_out` are notes on the other machines."""
    drawings = {name: figure.drawn(tables) for name, figure in figures.items()}
    charts = {name: _json(drawing.chart) for name, (drawing, _) in drawings.items() if drawing.chart is not None}
    chart_names = names_that_fit({name: len(chart) for name, chart in charts.items()}, MAX_CHART_BYTES)
    image_names = names_that_fit({name: len(image) for name, image in images.items()}, MAX_IMAGE_BYTES)
    rendered = {}
    for name, (drawing, result) in drawings.items():
        notes = [drawing.reason, *drawing.notes, *left_out]
        if name in charts and name not in chart_names:
            notes.append(f"Left out to limit the size of the page: see figures/{name}.svg, and the tables.")
        quantity = drawing.title or figures[name].title
        rendered[name] = PageFigure(
            title=result or quantity,
            quantity=quantity if result else "",
            notes=tuple(filter(None, notes)),
            legend=drawing.legend,
            chart=charts[name] if name in chart_names else None,
            image=images[name] if name in image_names else None,
        )
    return rendered


def _json(chart: Spec) -> str:
    return str(for_script(compact(specification(chart))))


def compact(chart: Spec) -> Spec:
    """The chart with rounded data as {name: {"columns": [...], "rows": [[...], ...]}}. The names are replaced by
    numbered ones, since Altair's are digests of unrounded values, whose last bits differ between processors."""
    new_names = {name: f"data-{number}" for number, name in enumerate(chart["datasets"], start=1)}
    plain = {key: _renamed(value, new_names) for key, value in chart.items() if key != "datasets"}
    return plain | {"datasets": {new_names[name]: _compact_rows(rows) for name, rows in chart["datasets"].items()}}


def _renamed(part: object, new_names: Mapping[str, str]) -> object:
    """The specification, or a part of it, with new names of data."""
    if isinstance(part, list):
        return [_renamed(item, new_names) for item in part]
    if not isinstance(part, dict):
        return part
    renamed = {key: _renamed(value, new_names) for key, value in part.items()}
    if part.get("name") in new_names:
        renamed["name"] = new_names[part["name"]]
    return renamed


def _compact_rows(rows: list[dict]) -> dict[str, list]:
    columns = list(rows[0]) if rows else []
    return {"columns": columns, "rows": [[_plain(row[name]) for name in columns] for row in rows]}


def _plain(value: object) -> object:
    if not isinstance(value, float):
        return value
    return rounded(value) if math.isfinite(value) else None  # NaN also stands for a missing text; JSON has no NaN
