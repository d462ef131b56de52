"""Markdown documents and tables as LaTeX (booktabs) and Typst, through pandoc."""

from pathlib import Path

from profile_grid.errors import OutsideError

TEMPLATES = Path(__file__).with_name("templates")
SUFFIXES = {"markdown": ".md", "latex": ".tex", "typst": ".typ"}
# no raw HTML and no mathematics: a name from a capture can only ever be text
READER = "commonmark-raw_html+pipe_tables"


class FormatError(OutsideError):
    """A format was requested that this machine cannot make; the message is one line."""


def document_in(style: str, markdown: str) -> str:
    """The document as a complete file in this format, which compiles without others."""
    if style == "markdown":
        return markdown
    template = TEMPLATES / f"document{SUFFIXES[style]}"
    return _converted(style, markdown, ["--standalone", f"--template={template}"])


def fragment_in(style: str, markdown: str) -> str:
    """The document without preamble, to be included in another text."""
    return markdown if style == "markdown" else _converted(style, markdown, [])


def _converted(style: str, markdown: str, options: list[str]) -> str:
    try:
        import pypandoc
    except ImportError:
        raise FormatError(
            f"formats: {style} needs pandoc, and pypandoc is not installed: pip install pypandoc_binary,"
            " or leave the format out of config.yaml"
        ) from None
    options = [*options, "--wrap=none", f"--lua-filter={TEMPLATES / 'print.lua'}"]
    return pypandoc.convert_text(markdown, style, format=READER, extra_args=options)
