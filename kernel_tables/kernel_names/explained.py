"""What a kernel's name says, for `kernel-tables names`: short name, class and its rule, what the parts mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from kernel_tables.clean_text import visible
from kernel_tables.kernel_classes.categories import UNKNOWN, rule_for
from kernel_tables.kernel_names.short import parts_of, short_name

MOST_WRITTEN = 28  # characters of a part, before it is cut


class NameFact(NamedTuple):
    """One thing that is said about a name: what it is about, what stands in the name, what it means."""

    about: str
    written: str
    meaning: str


def explained(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> list[NameFact]:
    """The rows about a full name: its short name, its class, the rule of that class, then its parts in their order."""
    rule = rule_for(name, extra_rules)
    found = [
        NameFact("short name", short_name(name), "more is added where another kernel of a table would have the same"),
        NameFact(
            "class", rule.kernel_class if rule else UNKNOWN, rule.reason if rule else "no rule fits; --class adds one"
        ),
    ]
    for part, pattern in rule.patterns if rule else ():
        found.append(NameFact("rule", " ".join(pattern.split()), f"searched in {WHERE[part]}"))
    return found + [NameFact(part.key, part.written, part.meaning) for part in parts_of(name)]


WHERE = {
    "operators": "the names of ATen operators",
    "own_name": "the kernel's own name, in lower case",
    "arguments": "its template arguments and parameters, in lower case",
    "full_name": "the full name",
}


def as_text(rows: Sequence[NameFact], width: int) -> str:
    """The rows as an aligned text: a meaning beside what stands in the name, or below where that is long."""
    about = max(len(row.about) for row in rows)
    written = min(MOST_WRITTEN, max(len(visible(row.written)) for row in rows))
    lines = []
    for row in rows:
        head, text = f"{row.about:<{about}}  ", visible(row.written)
        start = about + written + 4
        told = _lines(row.meaning, width - start)
        if len(text) > written:
            first, *rest = _lines(text, width - about - 2)
            lines += [head + first, *(" " * len(head) + line for line in rest)]
        else:
            lines.append(f"{head}{text:<{written}}  {told.pop(0)}".rstrip())
        lines += [" " * start + line for line in told]
    return "\n".join(lines) + "\n"


def _lines(text: str, width: int) -> list[str]:
    """The text in lines of this width, at least one; what is too long for a line is broken where it must be."""
    return wrap(visible(text), max(width, 30), break_on_hyphens=False) or [""]
