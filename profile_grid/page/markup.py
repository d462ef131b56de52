"""Markdown of sentences as HTML for the page; names in them cannot add markup."""

from markdown_it import MarkdownIt
from markupsafe import Markup

MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink", "html_inline", "entity"])


def markdown(text: str) -> Markup:
    """A sentence in Markdown as HTML: emphasis and code only, no links, no raw HTML."""
    return Markup(MARKDOWN.renderInline(text))
