"""Builds the site below docs/ and the pages of the example: `python -m docs.make`.

With --studies, it also builds the page of each study of the example (40 MB). A page is Markdown from files, or made
from the code: commands from the parsers, settings from the schema, columns from the data dictionary. No page is
committed.
"""

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.commands import kernel_tables_commands, rules, settings, study_commands, worked_example
from docs.pages import pages, pages_of_studies
from profile_grid.documents.dictionary import dictionary
from profile_grid.files import write_text
from workflow.command import run_command

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
TITLE = "Kernel tables: where GPU time goes in PyTorch"
Part = str | Callable[[], str]  # a file of the project, or a function that returns Markdown


@dataclass(frozen=True)
class Page:
    """One page: the stem of its file, its label in the menu, and its parts."""

    stem: str
    label: str
    parts: tuple[Part, ...]


def _page(stem: str, label: str, *further: Part) -> Page:
    """A page of docs/STEM.md and further parts."""
    return Page(stem, label, (f"docs/{stem}.md", *further))


SECTIONS = {
    "Start": (
        Page("index", "Start", ("docs/start.md",)),
        _page("record-a-program", "Record a program"),
        _page("first-grid", "Run your first grid"),
    ),
    "Record": (
        _page("recording-options", "Choose what to record"),
        _page("recording-ranks", "Record several GPUs"),
        _page("recording-notebook", "Record from a notebook"),
    ),
    "Read": (
        _page("read-a-capture", "Read a capture"),
        _page("read-a-torch-trace", "Read a trace of torch.profiler"),
        _page("diagnose", "Find lost time"),
        _page("host", "See what the host did"),
        _page("diff", "Compare two captures"),
        _page("communication", "Analyze communication"),
    ),
    "Grid": (
        _page("models", "Measure your own model"),
        _page("dimensions", "Choose dimensions"),
        _page("stages", "Choose stages"),
        _page("attention-alone", "Measure attention"),
        _page("running", "Run on several GPUs"),
        _page("slurm", "Run on Slurm"),
        _page("comparing", "Compare two grids"),
        _page("failures", "Fix a failed run"),
        _page("reruns", "What runs again"),
    ),
    "Share": (
        _page("sharing", "Pack results"),
        _page("module", "Use as a module"),
        _page("privacy", "Check what leaves the machine"),
    ),
    "Look up": (
        _page("commands", "Commands", rules, kernel_tables_commands, study_commands),
        Page("settings", "Settings", ("config/README.md", settings)),
        Page("columns", "Columns", ("docs/capture-columns.md", dictionary)),
        _page("questions", "Questions"),
        _page("finding-codes", "Finding codes"),
        _page("definitions", "Definitions"),
        _page("glossary", "Glossary"),
        Page("example", "Example", ("docs/example-h200/README.md", "docs/example-h200/answers/answers.md")),
    ),
    "Develop": (
        Page("architecture", "Architecture", ("ARCHITECTURE.md",)),
        _page("add-a-dimension", "Add a dimension", partial(worked_example, "dimension")),
        _page("add-a-stage", "Add a stage", partial(worked_example, "stage")),
        _page("add-a-question", "Add a question", partial(worked_example, "question")),
        _page("faults", "Faults and tests"),
        Page("benchmarks", "Benchmarks", ("benchmarks/README.md",)),
    ),
}
PAGES = tuple(page for pages in SECTIONS.values() for page in pages)
STEM_BY_FILE = {part: page.stem for page in PAGES for part in page.parts if isinstance(part, str)} | {
    "docs/example-h200/tables/README.md": "columns", "README.md": "index",
}  # fmt: skip


def site() -> dict[str, str]:
    """The HTML of every page, by file name."""
    return {f"{page.stem}.html": html_of(page) for page in PAGES}


def html_of(page: Page) -> str:
    """The page as HTML without scripts."""
    tokens = [token for number, part in enumerate(page.parts) for token in tokens_of(part, first=number == 0)]
    contents = set_anchors(tokens)
    body = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="table"><table>')
    body = body.replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    return PAGE_TEMPLATE.format(title=escape(f"{page.label} · {TITLE}"), menu=menu(page), contents=contents, body=body)


def tokens_of(part: Part, *, first: bool) -> list[Token]:
    """The parsed Markdown of a part with links relative to docs/. Unless it is `first`, headings are a level lower."""
    text = part() if callable(part) else (ROOT / part).read_text(encoding="utf-8")
    tokens = MARKDOWN.parse(text)
    # of the functions, only `dictionary` makes links; they are relative to the folder of its README.md
    folder = (ROOT / part).parent if isinstance(part, str) else DOCS / "example-h200" / "tables"
    for token in tokens:
        if token.type in ("heading_open", "heading_close") and not first:
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
        for child in token.children or ():
            for key in ("href", "src"):
                if key in child.attrs:
                    child.attrs[key] = relative_link(str(child.attrs[key]), folder)
    return tokens


def relative_link(link: str, folder: Path) -> str:
    """The link of a file in `folder`, relative to docs/; to a page of the site, if the linked file has one."""
    if re.match(r"[a-z]+:|#", link):
        return link
    path, _, anchor = link.partition("#")
    target = os.path.normpath(folder / path)
    stem = STEM_BY_FILE.get(os.path.relpath(target, ROOT))
    return (f"{stem}.html" if stem else os.path.relpath(target, DOCS)) + (f"#{anchor}" if anchor else "")


def set_anchors(tokens: list[Token]) -> str:
    """Sets the anchor of every heading. Returns those of level 2 as a list in HTML, "" if they are fewer than three."""
    entries, anchors = [], set()
    for token, inner in itertools.pairwise(tokens):  # the text of a heading is in the token after its beginning
        if token.type != "heading_open":
            continue
        text = "".join(child.content for child in inner.children or ())
        anchor = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
        while anchor in anchors:
            anchor += "-again"
        anchors.add(anchor)
        token.attrs["id"] = anchor
        if token.tag == "h2":
            entries.append(f'<li><a href="#{escape(anchor)}">{escape(text)}</a></li>')
    if len(entries) < 3:
        return ""
    return f"<details><summary>On this page</summary><ul>{''.join(entries)}</ul></details>"


def menu(current: Page) -> str:
    """Links to all pages by section; a screen reader announces the current page."""
    return "".join(
        f"<div><b>{escape(section)}</b>{''.join(_link(page, page is current) for page in pages)}</div>"
        for section, pages in SECTIONS.items()
    )


def _link(page: Page, is_current: bool) -> str:
    return f'<a href="{page.stem}.html"{" aria-current=page" if is_current else ""}>{escape(page.label)}</a>'


PAGE_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<a class="skip" href="#main">To the text</a>
<nav aria-label="Pages">{menu}</nav>
<main id="main">
{contents}
{body}</main>
</body>
</html>
"""


def main(*, studies: bool = False) -> None:
    """Builds docs/index.html and all pages that it links to; with `studies`, also the page of each study."""
    example_pages = pages() | (pages_of_studies() if studies else {})
    for name, text in site().items():
        write_text(DOCS / name, text)
    for path, make in example_pages.items():
        write_text(path, make())
    print(f"{len(example_pages)} pages of the example; open {DOCS / 'index.html'}")


if __name__ == "__main__":
    run_command(main)
