"""A comparison as one HTML file without scripts: what its document says, to be opened from a mail."""

from __future__ import annotations

from markdown_it import MarkdownIt

MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #d0d0d0; padding: 0.25rem 0.6rem; text-align: left; }
code { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
:focus-visible { outline: 2px solid #0059a3; outline-offset: 2px; }
@media print {
  .wide { overflow: visible; }
  th, td { overflow-wrap: anywhere; padding: 0.15rem 0.4rem; }
  tr { break-inside: avoid; }
}
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e6e6e6; } th, td { border-color: #444; } }
"""
WIDE = '<div class="wide" tabindex="0" role="region" aria-label="table">'  # scrolls by itself, by the keyboard too


def page(document: str) -> str:
    """The HTML of a document in Markdown; what stands in it as HTML is text."""
    body = MARKDOWN.render(document).replace("<table>", f"{WIDE}<table>").replace("</table>", "</table></div>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Before and after</title>\n'
        f"<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
