"""results/report.html: one file that opens from a mail, without a network.

It contains everything: the tables as data, the figures as images (for print, and if scripts do not run) and as
Vega-Lite specifications, and both libraries. Names are escaped by Jinja, when data are written as JSON, and by the
script.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from kernel_tables.page.markup import html_environment, script, style
from kernel_tables.page.timeline import Names
from profile_grid.documents.documents import Section, section
from profile_grid.figures import panels, run_selection
from profile_grid.page import charts, libraries
from profile_grid.page.step_views import ADVICE_TABLES, advice, flames, opening, opening_run, run_timeline, scope, speed
from profile_grid.page.tables import STATIC_ROWS, every_table, page_tables, tables_with
from profile_grid.study.catalogue import SUMMARY_NAMES, questions_asked, table_names_of
from profile_grid.study.dimensions import EVERY_DIMENSION, MODEL
from profile_grid.tables import measured, pivoting

HERE = Path(__file__).parent
MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink", "html_inline", "entity"])


@dataclass(frozen=True)
class Menu:
    """One menu, which filters the page by a dimension: its key, its label, and its choices as (value, text)."""

    column: str
    label: str
    choices: tuple[tuple[str, str], ...]


def menus(runs: pd.DataFrame, tables: Iterable[pd.DataFrame] = ()) -> list[Menu]:
    """The menus of the dimensions that vary, in their order. If no run has a value of a dimension, the choices are
    those in the first table that has some: one process may measure several values."""
    varying_menus = []
    for dimension in EVERY_DIMENSION:
        key = dimension.key
        rows = next((table for table in (runs, *tables) if key in table and table[key].notna().any()), None)
        if rows is not None and rows[key].nunique() > 1:
            values = run_selection.models_in_order(rows) if dimension is MODEL else pivoting.sorted_values(rows, key)
            choices = tuple((str(value), dimension.name_of(value)) for value in values)
            varying_menus.append(Menu(key, dimension.heading, choices))
    return varying_menus


def markdown(text: str) -> Markup:
    """A sentence in Markdown as HTML: emphasis and code only, no links and no raw HTML."""
    return Markup(MARKDOWN.renderInline(text))


def needed_tables(runs: pd.DataFrame) -> tuple[str, ...]:
    """The names of the tables that the page of these runs is made of."""
    needed = {*SUMMARY_NAMES, *ADVICE_TABLES, *(table.source for table in every_table().values())}
    for figure in panels.all_figures().values():
        needed.update(figure.tables)
    return tuple(name for name in table_names_of(runs.to_dict("records")) if name in needed)


def page(
    tables: dict[str, pd.DataFrame], provenance: dict, timeline: pd.DataFrame, images: dict[str, bytes],
    trace_file: str | None = None,
) -> str:  # fmt: skip
    """The page as HTML.

    `timeline` is the table of one step's timeline. `images` are the PNG files of the figures by name: fonts of an SVG
    would differ from viewer to viewer. `trace_file` is the trace for Perfetto, relative to the page.
    """
    runs = tables["runs"]
    rows = runs.to_dict("records")
    table_names, questions = table_names_of(rows), questions_asked(rows)
    summaries = {name: tables[name] for name in table_names if name in SUMMARY_NAMES}
    sections = [section(machine, run_names, runs, summaries) for machine, run_names in measured.by_machine(runs)]
    machine_tables, machine, left_out = run_selection.of_one_machine(tables)
    names = Names(measured.names_of_summary_kernels(machine_tables))
    shown_tables = page_tables(tables, names, questions)
    has_steps = "kernels" in table_names  # whether steps were captured
    return environment().get_template("template.html.j2").render(
        sections=sections,
        machine=machine,
        provenance=provenance,
        questions=questions,
        menus=menus(runs, tables.values()),
        has_steps=has_steps,
        tables=shown_tables,
        figures=charts.page_figures(panels.all_figures(questions), machine_tables, images, left_out),
        data={name: table.as_data() for name, table in shown_tables.items()},
        **_step_views(machine_tables, timeline, names, has_steps),
        names=names.as_lists(),
        trace_file=trace_file,
        scope=scope(runs),
    )  # fmt: skip


def _step_views(tables: Mapping, timeline: pd.DataFrame, names: Names, has_steps: bool) -> dict[str, object]:
    """What the template shows of captured steps: a timeline, flame graphs, and a picture with its speed and advice."""
    flame_graphs, flames_left_out = flames(tables, names) if has_steps else ({}, "")
    run = opening_run(tables) if has_steps else None
    step_picture, caption = opening(tables, run) if run else (None, "")
    timeline_run = timeline["run"].iloc[0] if len(timeline) else None
    return {
        "timeline": run_timeline(timeline, names),
        "timeline_run": timeline_run,
        "flames": flame_graphs,
        "flames_left_out": flames_left_out,
        # both views show the same run, if it has a flame graph
        "flame_run": timeline_run if timeline_run in flame_graphs else next(iter(flame_graphs), None),
        "picture": step_picture,
        "picture_caption": caption,
        "speed": speed(tables, run) if run else "",
        "advice": advice(tables, run) if run else [],
    }


def first_sentence(section: Section, question: str) -> Markup:
    """The answer to a question in one sentence."""
    return markdown(section.sentences[question][0])


def _legend(section: Section) -> list[tuple[Markup, str]]:
    """(label, full name) of the kernels that the sentences of this section mention."""
    text = "\n".join(claim for claims in section.sentences.values() for claim in claims)
    return [(markdown(label), name) for label, name in section.legend(text)]


def environment() -> jinja2.Environment:
    """The Jinja environment of the page's templates."""
    templates = html_environment(HERE)
    templates.filters |= {"markdown": markdown, "base64": lambda data: base64.b64encode(data).decode()}
    templates.globals |= {"tables_with": tables_with, "first_sentence": first_sentence, "legend": _legend}
    templates.globals |= {"static_rows": STATIC_ROWS, "libraries": libraries}
    templates.globals |= {"style": style(HERE / "grid.css"), "script": script(HERE / "page.js")}
    return templates
