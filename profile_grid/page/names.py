"""Kernel names on the page: each full name once, in one list, and a short form that says when something is left out."""

from __future__ import annotations

import re

UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\{anonymous\}::")
LEFT_OUT = "…"


class Names:
    """Full names, each once, and their numbers: a step has thousands of kernels and dozens of names."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The position of the name in `full`."""
        return self._numbers.setdefault(name, len(self._numbers))

    def as_lists(self) -> dict[str, list[str]]:
        """{"full": the names, "short": their short forms}."""
        return {"full": list(self._numbers), "short": [short_name(name) for name in self._numbers]}


def short_name(name: str) -> str:
    """The function's own name, without return type, namespaces, template arguments and parameters; "…" marks the rest."""
    own = re.split(r"[<(]", UNNAMED.sub("", name).removeprefix("void "), maxsplit=1)[0].split("::")[-1]
    return own + LEFT_OUT if re.search(r"\w", own) and own != name and not name.startswith("aten::") else name
