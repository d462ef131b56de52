"""A comparison as one HTML file without scripts, to be opened from a mail: its document and the figure of ratios."""

from __future__ import annotations

import base64
from pathlib import Path

import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from kernel_tables.page.markup import html_environment, style
from profile_grid.comparing.document import TITLE, sections, summary
from profile_grid.comparing.figure import FIGURE
from profile_grid.figures.shown import of_one_machine

HERE = Path(__file__).parent
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
WIDE = '<div class="wide" tabindex="0" role="region" aria-label="table">'  # scrolls by itself, by the keyboard too


def page(tables: dict[str, pd.DataFrame], runs: pd.DataFrame, image: bytes | None = None) -> str:
    """The HTML of a comparison from its tables, and the table of the runs after; `image` is its figure as PNG."""
    environment = html_environment(HERE)
    environment.filters["markdown"] = as_html
    drawn = {"runs": runs, "cells": tables["cells"]}
    return environment.get_template("page.html.j2").render(
        title=TITLE,
        machine=of_one_machine({"runs": runs})[1],
        summary=summary(tables["cells"]),
        sections=sections(tables),
        figure=FIGURE,
        caption=FIGURE.caption(drawn),
        image=base64.b64encode(image).decode() if image else None,
        style=style(HERE / "page.css"),
    )


def as_html(text: str) -> Markup:
    """Markdown as HTML; what stands in it as HTML is text."""
    body = MARKDOWN.render(text).replace("<table>", f"{WIDE}<table>").replace("</table>", "</table></div>")
    return Markup(body)
