"""Markdown documents and tables as LaTeX (booktabs) and Typst, by pandoc."""

from pathlib import Path

from profile_grid.errors import OutsideError

TEMPLATES = Path(__file__).with_name("templates")
SUFFIXES = {"markdown": ".md", "latex": ".tex", "typst": ".typ"}
INPUT_FORMAT = "commonmark-raw_html+pipe_tables"  # without HTML and mathematics, so that names are always text


class FormatError(OutsideError):
    """A format was requested that this machine cannot make."""


def document_in(file_format: str, markdown: str) -> str:
    """The document as a complete file in this format, to compile alone; FormatError without pandoc."""
    template = TEMPLATES / f"document{SUFFIXES[file_format]}"
    return _converted(file_format, markdown, "--standalone", f"--template={template}")


def fragment_in(file_format: str, markdown: str) -> str:
    """The document in this format without preamble, to be included in another text; FormatError without pandoc."""
    return _converted(file_format, markdown)


def _converted(file_format: str, markdown: str, *options: str) -> str:
    if file_format == "markdown":
        return markdown
    try:
        import pypandoc
    except ImportError:
        raise FormatError(
            f"formats: {file_format} needs pandoc, and pypandoc is not installed: pip install pypandoc_binary,"
            " or leave the format out of config.yaml"
        ) from None
    options = (*options, "--wrap=none", f"--lua-filter={TEMPLATES / 'print.lua'}")
    return pypandoc.convert_text(markdown, file_format, format=INPUT_FORMAT, extra_args=options)
