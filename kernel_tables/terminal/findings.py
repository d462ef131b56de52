"""Findings for a person: of a diagnosis what, where and how much, what to do, then what cannot tell; of `check`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kernel_tables.clean_text import visible
from kernel_tables.diagnosis.diagnose import Diagnosis, silent_by_reason
from kernel_tables.kernel_names.short import short_names

if TYPE_CHECKING:
    import pandas as pd

INDENT = "    "
MOST_NAMED = 3  # rules that cannot tell for one reason


def completeness_lines(table: pd.DataFrame, width: int) -> str:
    """What speaks against believing captures, from the table of `check`: each finding, or that there is none."""
    if table.empty:
        return "no problems found\n"
    lines = []
    for row in table.to_dict("records"):
        where = f"{row['capture']}: " if row.get("capture") else ""
        lines += _wrapped(f"{where}{row['severity']} {row['code']}: {row['message']}", width, "", INDENT)
    return "\n".join(lines) + "\n"


def finding_lines(found: list[Diagnosis], width: int) -> str:
    """The findings, largest gain first, then the rules that cannot tell, by their reason."""
    said = [one for one in found if not one.abstained]
    lines = [line for one in said for line in _finding(one, width)] or ["No rule finds anything."]
    for reason, codes in silent_by_reason(found).items():
        named = ", ".join(codes) if len(codes) <= MOST_NAMED else f"{len(codes)} rules"
        lines += _wrapped(f"not checked: {named} ({reason})", width, "", INDENT)
    return "\n".join(lines) + "\n"


def _finding(one: Diagnosis, width: int) -> Iterator[str]:
    yield f"{one.code}: at most {one.gain_ms:.3g} ms ({one.gain_percent:.1f} %), {one.sure}"
    yield from _wrapped(one.message, width)
    ranges, kernels = one.where["ranges"], one.where["kernels"]
    names = short_names(kernels)
    yield from _wrapped(f"in {_listed(ranges)}", width)
    yield from _wrapped(f"kernels: {_listed({names[name]: ms for name, ms in kernels.items()})}", width)
    yield from _wrapped(f"→ {one.advice}", width)
    yield ""


def _listed(ms_by_name: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {ms:.3g} ms" for name, ms in ms_by_name.items())


def _wrapped(text: str, width: int, first: str = INDENT, others: str = INDENT + "  ") -> list[str]:
    return textwrap.wrap(visible(text), max(width, 40), initial_indent=first, subsequent_indent=others)
