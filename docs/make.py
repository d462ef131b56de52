"""The site below docs/: `python -m docs.make` writes its pages, which open from the checkout.

A page is Markdown from a file, or made from the code: commands from the parsers, settings from the schema, columns from
the data dictionary. The pages are committed, and tests/test_site.py holds that they are what is made now.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.commands import kernel_tables_commands, rules, settings, study_commands
from profile_grid.documents.dictionary import dictionary

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
TITLE = "Where the time of a Transformer goes on a GPU"
Part = str | Callable[[], str]  # a file of the project, or what gives Markdown


@dataclass(frozen=True)
class Page:
    """One page: its file's stem, what the menu calls it, and the Markdown of which it consists."""

    stem: str
    label: str
    parts: tuple[Part, ...]


PAGES = (
    Page("index", "Start", ("docs/start.md",)),
    Page("numbers", "Numbers", ("docs/numbers.md",)),
    Page("models", "Your model", ("docs/models.md",)),
    Page("running", "Running", ("docs/running.md",)),
    Page("commands", "Commands", ("docs/commands.md", rules, kernel_tables_commands, study_commands)),
    Page("settings", "Settings", ("config/README.md", settings)),
    Page("columns", "Columns", (dictionary,)),
    Page("example", "Example", ("docs/example-h200/README.md", "docs/example-h200/answers/answers.md")),
    Page("kernel-tables", "Any capture", ("kernel_tables/README.md",)),
    Page("sharing", "Sharing", ("docs/sharing.md",)),
    Page("extend", "Extending", ("docs/extend.md",)),
    Page("faults", "Faults", ("docs/faults.md",)),
    Page("architecture", "Architecture", ("ARCHITECTURE.md",)),
)
PAGE_OF = {
    part: page.stem for page in PAGES for part in page.parts if isinstance(part, str) and part != "docs/commands.md"
} | {"docs/commands.md": "commands", "docs/example-h200/tables/README.md": "columns", "README.md": "index"}


def site() -> dict[str, str]:
    """Every page by the name of its file."""
    return {f"{page.stem}.html": html_of(page) for page in PAGES}


def html_of(page: Page) -> str:
    """The page as HTML without scripts."""
    tokens = [token for number, part in enumerate(page.parts) for token in tokens_of(part, first=number == 0)]
    contents = with_anchors(tokens)
    body = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    body = body.replace("<table>", '<div class="wide" tabindex="0" role="region" aria-label="table"><table>')
    body = body.replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    return PAGE.format(title=escape(f"{page.label} · {TITLE}"), menu=menu(page), contents=contents, body=body)


def tokens_of(part: Part, *, first: bool) -> list[Token]:
    """The Markdown of a part, its links as they lead from docs/; the heading of a further part is one of the page's."""
    text = part() if callable(part) else (ROOT / part).read_text(encoding="utf-8")
    tokens = MARKDOWN.parse(text)
    folder = (ROOT / part).parent if isinstance(part, str) else DOCS / "example-h200" / "tables"
    for token in tokens:
        if token.type in ("heading_open", "heading_close") and not first:
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
        for child in token.children or ():
            for key in ("href", "src"):
                if key in child.attrs:
                    child.attrs[key] = leading(str(child.attrs[key]), folder)
    return tokens


def leading(link: str, folder: Path) -> str:
    """A link as it leads from a page of the site: to another page where the file has one."""
    if re.match(r"[a-z]+:|#", link):
        return link
    path, _, anchor = link.partition("#")
    target = os.path.normpath(folder / path)
    page = PAGE_OF.get(os.path.relpath(target, ROOT))
    return (f"{page}.html" if page else os.path.relpath(target, DOCS)) + (f"#{anchor}" if anchor else "")


def with_anchors(tokens: list[Token]) -> str:
    """The contents of a page as HTML; each heading gets the anchor to which it leads."""
    entries, seen = [], set()
    for token, inner in itertools.pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(child.content for child in inner.children or ())
        anchor = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
        while anchor in seen:
            anchor += "-again"
        seen.add(anchor)
        token.attrs["id"] = anchor
        if token.tag == "h2":
            entries.append(f'<li><a href="#{escape(anchor)}">{escape(text)}</a></li>')
    if len(entries) < 3:
        return ""
    return f"<details><summary>On this page</summary><ul>{''.join(entries)}</ul></details>"


def menu(current: Page) -> str:
    """Links to all pages; a reader of the screen is told which one this is."""
    return "".join(
        f'<a href="{page.stem}.html"{" aria-current=page" if page is current else ""}>{escape(page.label)}</a>'
        for page in PAGES
    )


PAGE = """\
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


if __name__ == "__main__":
    for name, text in site().items():
        (DOCS / name).write_text(text, encoding="utf-8")
