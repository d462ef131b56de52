"""A figure on paper: the chart between its title and its notes, as SVG and PNG without a browser."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import pandas as pd

from profile_grid.figures.drawing import Figure, Tables
from profile_grid.figures.fonts import vl_convert
from profile_grid.figures.layout import Spec, column
from profile_grid.figures.png import packed
from profile_grid.figures.run_selection import of_one_machine
from profile_grid.figures.theme import FONT_SIZE, SMALL, WIDTH, config, parameters
from profile_grid.files import replacing

PNG_SCALE = 2
SUFFIXES = (".svg", ".png")
LINE_CHARACTERS, HEADLINE_CHARACTERS = 150, 95  # of small text and of a headline in the width of a figure
SEPARATE = dict.fromkeys(("color", "fill", "stroke", "shape", "strokeDash"), "independent")  # legends above notes
SVG = "http://www.w3.org/2000/svg"
NUMBERED = re.compile(r"(?:gradient_|clip)\d+")


def on_paper(figure: Figure, tables: Tables) -> Spec:
    """The figure of the machine with the most runs as a Vega-Lite specification. Its headline is the result, below it
    the quantity; the notes below the chart end with the machine and what is left out."""
    of_machine, machine, left_out = of_one_machine(tables)
    drawing = figure.draw(of_machine)
    chart = drawing.chart if drawing.chart is not None else _only_text(drawing.reason)
    texts = (*drawing.notes, *drawing.absent, f"Measured on {machine}.", *left_out)
    inner = column(chart, spacing=0, title=_notes([line for text in texts for line in wrapped(text)]))
    quantity = drawing.title or figure.title
    result = figure.result(of_machine) if drawing.chart is not None else ""
    title = alt.TitleParams(
        wrapped(result or quantity, HEADLINE_CHARACTERS), subtitle=wrapped(quantity) if result else [],
        fontSize=FONT_SIZE + 4, fontWeight="bold", frame="bounds", offset=10,
    )  # fmt: skip
    return specification(column(inner, spacing=0, title=title, resolve={"scale": SEPARATE}))


def specification(chart: Spec) -> Spec:
    """The complete input of Vega-Lite: the chart with the colours and the configuration of this project."""
    all_parameters = [*parameters(), *chart.get("params", [])]
    return {"$schema": alt.SCHEMA_URL, "config": config()} | chart | {"params": all_parameters}


def drawn(specification: Spec, suffix: str) -> bytes:
    """The bytes of a figure as ".svg" or ".png": the same for the same figure, without dates or paths."""
    paper = specification | {"background": "white"}
    if suffix == ".png":
        return packed(vl_convert.vegalite_to_png(paper, scale=PNG_SCALE))
    return _renumbered(vl_convert.vegalite_to_svg(paper)).encode()


def write_figure(figure: Figure, tables: Tables, folder: Path) -> dict[str, bytes]:
    """Writes NAME.svg and NAME.png of the figure on paper, each complete or not at all; returns them by suffix."""
    specification = on_paper(figure, tables)
    files = {suffix: drawn(specification, suffix) for suffix in SUFFIXES}
    for suffix, content in files.items():
        with replacing(folder / f"{figure.name}{suffix}") as partial:
            partial.write_bytes(content)
    return files


def wrapped(text: str, width: int = LINE_CHARACTERS) -> list[str]:
    """The text as lines: broken at spaces, and in words that are longer than a line."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _only_text(reason: str) -> Spec:
    lines = wrapped(reason, 90)
    text = alt.Chart(pd.DataFrame({"_": [0]})).mark_text(text=lines, fontSize=FONT_SIZE + 1)
    return column(text.properties(width=WIDTH, height=60 + 14 * len(lines)), spacing=0)


def _notes(lines: list[str]) -> alt.TitleParams:
    return alt.TitleParams(
        lines, orient="bottom", fontSize=SMALL, lineHeight=12, frame="bounds", offset=10, color=alt.ExprRef("soft")
    )


def _renumbered(svg: str) -> str:
    """The SVG with its gradients and clips numbered from 0: the library counts on from figure to figure."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(svg)
    numbers: dict[str, str] = {}
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id" or value.startswith("url(#"):
                new = NUMBERED.sub(lambda match: numbers.setdefault(match[0], f"paint{len(numbers)}"), value)
                element.set(name, new)
    return ElementTree.tostring(root, encoding="unicode") + "\n"
