"""Phase and part of a range path: the name directly inside a step, and the innermost name."""

from __future__ import annotations

from collections.abc import Iterable

OUTSIDE = "(outside)"  # of a step where no range is open in it


def phases_and_parts(paths: Iterable[tuple[str, ...]], step_name: str) -> tuple[list[str], list[str]]:
    """(the phase, the part) of every path; of one without a step, its outermost name is the phase."""
    phases, parts = [], []
    for path in paths:
        inner = path[path.index(step_name) + 1 :] if step_name in path else path
        phases.append(inner[0] if inner else OUTSIDE)
        parts.append(inner[-1] if inner else OUTSIDE)
    return phases, parts
