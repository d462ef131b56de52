"""Markdown of sentences as HTML for the page; names in them cannot add markup."""

from markdown_it import MarkdownIt
from markupsafe import Markup

LINKED = MarkdownIt("commonmark", {"html": False}).disable(["image", "autolink", "html_inline", "entity"])
MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable(["link", "image", "autolink", "html_inline", "entity"])


def markdown(text: str, *, links: bool = False) -> Markup:
    """A sentence in Markdown as HTML: emphasis and code only, no raw HTML, and links only if requested."""
    return Markup((LINKED if links else MARKDOWN).renderInline(text))
