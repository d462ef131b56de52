"""Jinja for HTML, and JSON, style sheets and scripts to put into a page."""

import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from kernel_tables.clean_text import escaped_json, visible_lines
from kernel_tables.page.colors import background, family_look, looks, phase_look
from kernel_tables.units import duration, percent

PAGE_FOLDER = Path(__file__).parent
SCRIPTS = ("shared.js", "flame.js", "timeline.js")


def for_script(value: object) -> Markup:
    """A value as JSON that is safe in a script element, whatever names it contains."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(escaped_json(text).replace("<", "\\u003c"))


def html_environment(*folders: Path) -> jinja2.Environment:
    """Jinja for HTML with the templates of `folders` and of this folder. All text is escaped, with its invisible
    characters; an undefined variable is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, PAGE_FOLDER]), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_escape_invisible,
    )  # fmt: skip
    environment.filters |= {
        "for_script": for_script,
        "percent": percent,
        "family_background": lambda family: background(family_look(family)),
        "phase_background": lambda phase: background(phase_look(phase)),
        "ms": lambda ms: duration(1e6 * ms),
    }
    environment.globals["looks"] = looks()
    return environment


def _escape_invisible(value: object) -> object:
    """The value. If it is a text, its invisible characters are escaped, as in a terminal; Markup is left as it is."""
    return visible_lines(value) if type(value) is str else value  # Markup is a subclass of str


def style(*other_files: Path) -> Markup:
    """The style sheet of every page, followed by others."""
    return _joined([PAGE_FOLDER / "style.css", *other_files])


def script(*other_files: Path) -> Markup:
    """The scripts of every page, followed by others, as one script."""
    return _joined([*(PAGE_FOLDER / name for name in SCRIPTS), *other_files])


def _joined(files: Sequence[Path]) -> Markup:
    return Markup("\n".join(path.read_text("utf-8") for path in files))
