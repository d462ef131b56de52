"""The figures of the page: Vega-Lite specifications with data in columnar form, so that keys are not repeated in every
row."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_tables.page.markup import for_script
from profile_grid.figures.panels import Figure, Spec, Tables
from profile_grid.figures.paper import specification
from profile_grid.page.tables import names_that_fit

SIGNIFICANT = 6
MAX_CHART_BYTES, MAX_IMAGE_BYTES = 1_500_000, 1_900_000  # of all figures together


@dataclass(frozen=True)
class PageFigure:
    """One figure of the page. If it has a result, that is `title`, and `quantity` says what is drawn; otherwise `title`
    says what is drawn, and `quantity` is empty.

    `chart` is the Vega-Lite specification as JSON, `image` the PNG file; each is None if there is none, or no room
    for it. `legend` is shown on request.
    """

    title: str
    quantity: str
    notes: tuple[str, ...]
    legend: tuple[str, ...]
    chart: str | None
    image: bytes | None


def page_figures(
    figures: Mapping[str, Figure], tables: Tables, images: dict[str, bytes], left_out: list[str]
) -> dict[str, PageFigure]:
    """These figures by name, from the tables of one machine; `left_out` are notes on the other machines."""
    drawings = {name: figure.drawn(tables) for name, figure in figures.items()}
    charts = {name: _json(drawing.chart) for name, (drawing, _) in drawings.items() if drawing.chart is not None}
    kept_charts = names_that_fit({name: len(chart) for name, chart in charts.items()}, MAX_CHART_BYTES)
    pictures = names_that_fit({name: len(image) for name, image in images.items()}, MAX_IMAGE_BYTES)
    rendered = {}
    for name, (drawing, result) in drawings.items():
        notes = [drawing.reason, *drawing.notes, *left_out]
        if name in charts and name not in kept_charts:
            notes.append(f"Left out to limit the size of the page: see figures/{name}.svg, and the tables.")
        quantity = drawing.title or figures[name].title
        rendered[name] = PageFigure(
            result or quantity,
            quantity if result else "",
            tuple(note for note in notes if note),
            drawing.legend,
            charts[name] if name in kept_charts else None,
            images[name] if name in pictures else None,
        )
    return rendered


def _json(chart: Spec) -> str:
    return str(for_script(compact(specification(chart))))


def compact(chart: Spec) -> Spec:
    """The chart with its data by column: {name: {"columns": [...], "rows": [[...], ...]}}, and numbered names of the
    data.

    Altair names data by a digest of unrounded values, whose last bits differ between processors; here values are
    rounded.
    """
    names = {name: f"data-{number}" for number, name in enumerate(chart["datasets"], start=1)}
    plain = {key: _renamed(value, names) for key, value in chart.items() if key != "datasets"}
    return plain | {"datasets": {names[name]: _by_column(rows) for name, rows in chart["datasets"].items()}}


def _renamed(part: object, names: Mapping[str, str]) -> object:
    """The specification, or a part of it, with the names of data replaced."""
    if isinstance(part, list):
        return [_renamed(item, names) for item in part]
    if not isinstance(part, dict):
        return part
    renamed = {key: _renamed(value, names) for key, value in part.items()}
    return renamed | {"name": names[part["name"]]} if part.get("name") in names else renamed


def _by_column(rows: list[dict]) -> dict[str, list]:
    columns = list(rows[0]) if rows else []
    return {"columns": columns, "rows": [[_rounded(row[name]) for name in columns] for row in rows]}


def _rounded(value):
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None  # NaN also stands for an absent text; JSON has no NaN
    number = float(f"{value:.{SIGNIFICANT}g}")
    return int(number) if number.is_integer() else number
