"""How often torch.compile compiled for the program, and why it did so again."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

MOST_REASONS, MOST_CHARACTERS = 3, 200
TEXT = re.compile(r"""(\[|tensor )?('[^']*'|"[^"]*")""")  # a name if something leads it, else any text of the program


@dataclass(frozen=True)
class Compilations:
    """So far: how many graphs were compiled, and the reasons why a compiled one did not fit a call."""

    graphs: int = 0
    reasons: tuple[str, ...] = ()


def compilations() -> Compilations:
    """Those of this process; none where its TorchDynamo keeps no counts, or is not imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters, failures = getattr(utils, "counters", {}), getattr(utils, "guard_failures", {})
    reasons = [_without_place(text) for texts in list(failures.values()) for text in texts]
    return Compilations(int(counters.get("stats", {}).get("unique_graphs", 0)), tuple(reasons))


def compilations_since(before: Compilations) -> dict[str, object]:
    """What was compiled since then, for the notes; empty where nothing was."""
    now = compilations()
    if now.graphs <= before.graphs:
        return {}
    rest = list(now.reasons)
    for reason in before.reasons:
        if reason in rest:
            rest.remove(reason)
    reasons = list(dict.fromkeys(rest))[:MOST_REASONS]
    return {"compilations": now.graphs - before.graphs, "compilation_reasons": reasons}


def _without_place(reason: str) -> str:
    """A reason such as "0/1: tensor 'x' size mismatch  # y = x  # train.py:12 in forward" without number, source and
    texts of the program."""
    text = reason.partition("\n")[0].partition("  # ")[0]
    number, separator, rest = text.partition(": ")
    text = rest if separator and "/" in number else text
    return TEXT.sub(lambda match: match[0] if match[1] else "'...'", text)[:MOST_CHARACTERS]
