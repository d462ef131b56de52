"""The worked examples of the pages on growing the project, as Markdown: the patches that a test applies and runs."""

from __future__ import annotations

import re
from pathlib import Path

PATCHES = Path(__file__).parents[1] / "tests" / "patches"
LANGUAGES = {".py": "python", ".j2": "jinja", ".yaml": "yaml"}


def dimension() -> str:
    """The example of a dimension."""
    return as_markdown("dimension")


def stage() -> str:
    """The example of a stage."""
    return as_markdown("stage")


def question() -> str:
    """The example of a question."""
    return as_markdown("question")


def as_markdown(name: str) -> str:
    """The example of this name: a new file of its patch as it will be, a changed one as its difference."""
    patch = (PATCHES / f"{name}.patch").read_text(encoding="utf-8")
    intro = f"`git apply tests/patches/{name}.patch` adds it, and `tests/workflow/test_growing.py` applies and runs it."
    files = map(_file, re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE)[1:])
    return "\n\n".join(["# The complete example", intro, *files]) + "\n"


def _file(difference: str) -> str:
    path = re.match(r"diff --git a/(\S+)", difference)[1]
    if "\n@@ " not in difference:
        return f"## {path}\n\nAn empty file."
    lines = difference[difference.index("\n@@ ") + 1 :].splitlines()
    if "\n--- /dev/null\n" in difference:
        lines, language = [line[1:] for line in lines[1:]], LANGUAGES[Path(path).suffix]
    else:
        language = "diff"
    return "\n".join([f"## {path}", "", f"```{language}", *lines, "```"])
