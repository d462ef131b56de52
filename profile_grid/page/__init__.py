"""results/report.html: one file that opens from a mail, without a network.

Everything is in it: the tables as data, the figures on paper as images (for print, and where scripts do not run), the
interactive ones as plotly's JSON, both libraries. Names are escaped by Jinja, by the JSON below, and by the script.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import jinja2
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from profile_grid.documents.documents import Section, section
from profile_grid.figures import KINDS, caption
from profile_grid.figures.rows import MODE_NAMES, models_in_order, of_one_machine
from profile_grid.page import libraries
from profile_grid.page.charts import charts
from profile_grid.page.names import Names
from profile_grid.page.steps import flame, timeline_figure
from profile_grid.page.tables import STATIC_ROWS, page_tables
from profile_grid.page.themes import THEMES
from profile_grid.study import catalogue
from profile_grid.tables.machines import by_machine

HERE = Path(__file__).parent
TABLES = tuple(name for name in catalogue.TABLES if name not in ("steps", "cost"))
MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink", "html_inline", "entity"])


SECTIONS = tuple(question for question in catalogue.QUESTIONS if question.has_document)
BEYOND = tuple(name for question in catalogue.QUESTIONS if not question.has_document for name in question.figures)


def page(
    tables: dict[str, pd.DataFrame],
    provenance: dict,
    timeline: pd.DataFrame,
    images: dict[str, bytes],
    trace_file: str | None = None,
) -> str:
    """The page.

    `images` are the PNG files of the figures by name, since an SVG's fonts differ from viewer to viewer; `trace_file`
    is where the trace for Perfetto lies, relative to the page.
    """
    summaries = {name: tables[name] for name in catalogue.SUMMARIES}
    parts = [section(machine, runs, tables["runs"], summaries) for machine, runs in by_machine(tables["runs"])]
    of_machine, machine, _ = of_one_machine(tables)
    names = Names()
    return _environment().get_template("template.html.j2").render(
        parts=parts,
        machine=machine,
        provenance=provenance,
        sections=SECTIONS,
        beyond=BEYOND,
        questions=list(catalogue.DOCUMENTS),
        first_sentence=first_sentence,
        legend=_legend,
        choices=_choices(tables["runs"]),
        tables=(page_tables_of := page_tables(tables, names)),
        static_rows=STATIC_ROWS,
        titles={kind.name: kind.title for kind in KINDS},
        captions={kind.name: caption(kind.name, tables) for kind in KINDS},
        images={name: base64.b64encode(png).decode() for name, png in images.items()},
        charts={name: json.loads(figure.to_json()) for name, figure in charts(of_machine).items()},
        data={name: table.as_data() for name, table in page_tables_of.items()},
        timeline=_timeline(timeline, names),
        timeline_run=timeline["run"].iloc[0] if len(timeline) else None,
        flames=(flames := _flames(of_machine, names)),
        flame_run=_first_flame(flames, timeline),
        names=names.as_lists(),
        themes=THEMES,
        trace_file=trace_file,
        libraries=libraries,
        style=Markup((HERE / "style.css").read_text()),
        script=Markup((HERE / "page.js").read_text()),
    )  # fmt: skip


def first_sentence(of: Section, question: str) -> Markup:
    """The answer to a question in one sentence."""
    return markdown(of.sentences[question][0])


def markdown(text: str) -> Markup:
    """A sentence in Markdown as HTML: emphasis and code only, no links, no HTML of its own."""
    return Markup(MARKDOWN.renderInline(text))


def for_script(value: object) -> Markup:
    """A value as JSON that can stand in a script element, whatever names it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _legend(of: Section) -> list[tuple[Markup, str]]:
    """Label and full name of the kernels that this machine's sentences mention."""
    text = "\n".join(sentence for sentences in of.sentences.values() for sentence in sentences)
    return [(markdown(label), name) for label, name in of.legend(text)]


def _choices(runs: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """What the filters offer: value and text."""
    modes = [(mode, name) for mode, name in MODE_NAMES.items() if mode in set(runs["mode"])]
    contexts = [(str(context), str(context)) for context in sorted(set(runs["context_length"]))]
    return {"model": [(m, m) for m in models_in_order(runs)], "context_length": contexts, "mode": modes}


def _timeline(table: pd.DataFrame, names: Names) -> dict | None:
    figure = timeline_figure(table, names)
    return json.loads(figure.to_json()) if figure is not None else None


def _flames(tables: dict[str, pd.DataFrame], names: Names) -> dict[str, dict]:
    """The flame view of every run that holds kernels, fullest mode first."""
    present = list(dict.fromkeys(tables["kernels"]["run"]))
    fullest = sorted(present, key=lambda run: not run.endswith("train_step"))
    return {run: flame(tables["kernels"], run, names) for run in fullest}


def _first_flame(flames: dict[str, dict], timeline: pd.DataFrame) -> str | None:
    """The run whose step the timeline shows, so that both views show the same; else the first."""
    same = timeline["run"].iloc[0] if len(timeline) else None
    return same if same in flames else next(iter(flames), None)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"markdown": markdown, "for_script": for_script}
    return environment
