"""Text of others on the page: Markdown as HTML, and values as JSON, whatever names they hold."""

from __future__ import annotations

import json

from markdown_it import MarkdownIt
from markupsafe import Markup

MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink", "html_inline", "entity"])


def markdown(text: str) -> Markup:
    """A sentence in Markdown as HTML: emphasis and code only, no links, no HTML of its own."""
    return Markup(MARKDOWN.renderInline(text))


def for_script(value: object) -> Markup:
    """A value as JSON that can stand in a script element, whatever names it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
