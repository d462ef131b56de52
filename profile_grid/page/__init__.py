"""results/report.html: one file that opens from a mail, without a network.

Everything is in it: the tables as data, the figures on paper as images (for print, and where scripts do not run), the
same figures as Vega-Lite reads them, both libraries. Names are escaped by Jinja, by the JSON below, and by the script.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import jinja2
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from kernel_tables.page.markup import html_environment, script, style
from kernel_tables.page.timeline import Names
from profile_grid.documents.documents import Section, section
from profile_grid.figures import panels, run_selection
from profile_grid.page import charts, libraries
from profile_grid.page.flame import OF_VERDICT, advice, flames, opening, opening_run, run_timeline, scope, speed
from profile_grid.page.tables import STATIC_ROWS, every_table, page_tables, tables_with
from profile_grid.study.catalogue import SUMMARIES, questions_asked, tables_of
from profile_grid.study.dimensions import EVERY_DIMENSION, MODEL, Dimension
from profile_grid.tables import measured, pivoting, wording


@dataclass(frozen=True)
class Menu:
    """One menu: the column that it filters, its label, and value and text of each choice."""

    column: str
    label: str
    choices: tuple[tuple[str, str], ...]


def menus(runs: pd.DataFrame, tables: Iterable[pd.DataFrame] = ()) -> list[Menu]:
    """The menus in the order of the dimensions. If no run has values of a dimension, they come from the tables: one
    process may measure several."""
    shown_menus = []
    for dimension in EVERY_DIMENSION:
        key = dimension.key
        rows = next((table for table in (runs, *tables) if key in table and table[key].notna().any()), None)
        if rows is not None and rows[key].nunique() > 1:
            choices = tuple((str(value), dimension.name_of(value)) for value in _in_order(rows, dimension))
            shown_menus.append(Menu(key, dimension.heading, choices))
    return shown_menus


def _in_order(runs: pd.DataFrame, dimension: Dimension) -> list:
    """The distinct values: models by size, others in the declared order or by value."""
    return run_selection.models_in_order(runs) if dimension is MODEL else pivoting.sorted_values(runs, dimension.key)


LINKED = MarkdownIt("commonmark", {"html": False}).disable(["image", "autolink", "html_inline", "entity"])
MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink", "html_inline", "entity"])


def markdown(text: str, *, links: bool = False) -> Markup:
    """A sentence in Markdown as HTML: emphasis and code only, no raw HTML, and links only if requested."""
    return Markup((LINKED if links else MARKDOWN).renderInline(text))


HERE = Path(__file__).parent


def needed_tables(runs: pd.DataFrame) -> tuple[str, ...]:
    """The tables that the page of these runs is made of: those that its figures, sentences and tables read."""
    of_figures = (name for figure in panels.all_figures().values() for name in figure.tables)
    needed = {*SUMMARIES, *OF_VERDICT, *of_figures, *(table.source for table in every_table().values())}
    return tuple(name for name in tables_of(runs.to_dict("records")) if name in needed)


def page(
    tables: dict[str, pd.DataFrame],
    provenance: dict,
    timeline: pd.DataFrame,
    images: dict[str, bytes],
    trace_file: str | None = None,
    *,
    table_files: Mapping[str, str] | None = None,
    links: Mapping[str, wording.Claim] = MappingProxyType({}),
) -> str:
    """The page.

    `images` are the PNG files of the figures by name, since an SVG's fonts differ from viewer to viewer. Paths are
    relative to the page: `trace_file` is the trace for Perfetto, `table_files` the files of tables, if the page is not
    in the folder of the results. `links` are as in `documents`, relative to the page.
    """
    names_of_tables = tables_of(tables["runs"].to_dict("records"))
    summaries = {name: tables[name] for name in names_of_tables if name in SUMMARIES}
    sections = [
        section(machine, names, tables["runs"], summaries, links=links)
        for machine, names in measured.by_machine(tables["runs"])
    ]
    of_machine, machine, left_out = run_selection.of_one_machine(tables)
    names = Names(measured.names_of_summary_kernels(of_machine))
    asked = questions_asked(tables["runs"].to_dict("records"))
    shown_tables = page_tables(tables, names, asked, table_files)
    has_steps = "kernels" in names_of_tables
    return environment().get_template("template.html.j2").render(
        sections=sections,
        machine=machine,
        provenance=provenance,
        questions=asked,
        menus=menus(tables["runs"], tables.values()),
        has_steps=has_steps,
        tables=shown_tables,
        figures=charts.page_figures(panels.all_figures(asked), of_machine, images, left_out),
        data={name: table.as_data() for name, table in shown_tables.items()},
        **_views_of_steps(of_machine, timeline, names, has_steps),
        names=names.as_lists(),
        trace_file=trace_file,
        scope=scope(tables["runs"]),
        in_results=table_files is None,
        links=links,
    )  # fmt: skip


def _views_of_steps(tables: Mapping, timeline: pd.DataFrame, names: Names, has_steps: bool) -> dict[str, object]:
    """The timeline of a step, the flame graphs, and the opening of the page: a picture, its speed, and advice."""
    flame_views, flames_left_out = flames(tables, names) if has_steps else ({}, "")
    run = opening_run(tables) if has_steps else None
    return {
        "timeline": run_timeline(timeline, names),
        "timeline_run": timeline["run"].iloc[0] if len(timeline) else None,
        "flames": flame_views,
        "flames_left_out": flames_left_out,
        "flame_run": _first_flame(flame_views, timeline),
        "picture": opening(tables, run) if run else None,
        "speed": speed(tables, run) if run else "",
        "advice": advice(tables, run) if run else [],
    }


def first_sentence(section: Section, question: str) -> Markup:
    """The answer to a question in one sentence."""
    claim = section.sentences[question][0]
    return markdown(claim, links="link" in claim.numbers)


def _legend(section: Section) -> list[tuple[Markup, str]]:
    """Label and full name of the kernels that this machine's sentences mention."""
    text = "\n".join(sentence for sentences in section.sentences.values() for sentence in sentences)
    return [(markdown(label), name) for label, name in section.legend(text)]


def _first_flame(flames: dict[str, dict], timeline: pd.DataFrame) -> str | None:
    """The run whose step the timeline shows, so that both views show the same; else the first."""
    same = timeline["run"].iloc[0] if len(timeline) else None
    return same if same in flames else next(iter(flames), None)


def environment() -> jinja2.Environment:
    """Jinja with the templates of the page."""
    templates = html_environment(HERE)
    templates.filters |= {"markdown": markdown, "base64": lambda data: base64.b64encode(data).decode()}
    templates.globals |= {"tables_with": tables_with, "first_sentence": first_sentence, "legend": _legend}
    templates.globals |= {"static_rows": STATIC_ROWS, "libraries": libraries}
    templates.globals |= {"style": style(HERE / "grid.css"), "script": script(HERE / "page.js")}
    return templates
