"""Values as JSON that can stand in a page, whatever names they hold; the home of Jinja for HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from kernel_tables.clean_text import in_json, visible_lines
from kernel_tables.page.colors import background, family_look, looks, phase_look
from kernel_tables.units import duration, percent

HERE = Path(__file__).parent
SCRIPTS = ("shared.js", "flame.js", "timeline.js")


def for_script(value: object) -> Markup:
    """A value as JSON that can stand in a script element, whatever names it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(in_json(text).replace("<", "\\u003c"))


def html_environment(*folders: Path) -> jinja2.Environment:
    """Jinja for HTML with the templates of FOLDERS and of this one: names are escaped, what cannot be seen in them too;
    an unknown one is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, HERE]), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_seen,
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


def _seen(value: object) -> object:
    """A text that is not markup yet with what cannot be seen as escapes, as in a terminal."""
    return visible_lines(value) if type(value) is str else value


def style(*more: Path) -> Markup:
    """The style sheet of every page, and after it others."""
    return _joined([HERE / "style.css", *more])


def script(*files: Path) -> Markup:
    """The scripts of every page, and after them others, as one."""
    return _joined([*(HERE / name for name in SCRIPTS), *files])


def _joined(files: Sequence[Path]) -> Markup:
    return Markup("\n".join(path.read_text("utf-8") for path in files))
