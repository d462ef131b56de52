"""The files of a comparison: tables, figure, document, and a page without scripts that opens from a mail."""

import base64
from pathlib import Path

import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from kernel_tables.page.markup import html_environment, style
from profile_grid.comparing import figure, results
from profile_grid.comparing.cells import (
    CELLS,
    CHANGED_FACTS,
    CHANGES,
    ENERGIES,
    cells,
    changes,
    energies,
    facts_that_differ,
)
from profile_grid.comparing.document import TITLE, as_markdown, document, sections, summary
from profile_grid.figures import paper, run_selection
from profile_grid.files import write_table, write_text


def comparison(before: results.Results, after: results.Results) -> dict[str, pd.DataFrame]:
    """The tables by name: `facts` that differ, `cells` with their verdicts, `energies`, and `changes` in the captures.
    Raises WrongTable if one differs from its declaration."""
    tables = {}
    for spec, make in ((CHANGED_FACTS, facts_that_differ), (CELLS, cells), (ENERGIES, energies), (CHANGES, changes)):
        tables[spec.name] = make(before, after)
        spec.check(tables[spec.name])
    return tables


HERE = Path(__file__).parent
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
SCROLLABLE = '<div class="wide" tabindex="0" role="region" aria-label="table">'  # tabindex: also with the keyboard


def page(tables: dict[str, pd.DataFrame], runs: pd.DataFrame, image: bytes | None = None) -> str:
    """The HTML of a comparison from its tables and the `runs` of the side after. `image`: its figure as PNG, if any."""
    environment = html_environment(HERE)
    environment.filters["markdown"] = as_html
    _, machine_title, _ = run_selection.of_one_machine({"runs": runs})
    _, caption = figure.FIGURE.drawn({"runs": runs, "cells": tables["cells"]})
    return environment.get_template("page.html.j2").render(
        title=TITLE,
        machine=machine_title,
        summary="\n\n".join(as_markdown(summary(tables["cells"], tables["changes"]))),
        sections=sections(tables),
        figure=figure.FIGURE,
        caption=caption,
        image=base64.b64encode(image).decode() if image else None,
        style=style(HERE / "page.css"),
    )


def as_html(text: str) -> Markup:
    """Markdown as HTML; HTML in it becomes text."""
    html = MARKDOWN.render(text).replace("<table>", f"{SCROLLABLE}<table>").replace("</table>", "</table></div>")
    return Markup(html)


def write_comparison(before: results.Results, after: results.Results, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes the tables, ratios.svg and .png, comparison.md and .html into a folder. Returns the tables by name."""
    tables = comparison(before, after)
    for name, table in tables.items():
        write_table(folder / f"{name}.csv", table)
    runs = after.tables["runs"]
    files = paper.write_figure(figure.FIGURE, {"runs": runs, "cells": tables["cells"]}, folder)
    write_text(folder / "comparison.md", document(tables))
    write_text(folder / "comparison.html", page(tables, runs, files[".png"]))
    return tables
