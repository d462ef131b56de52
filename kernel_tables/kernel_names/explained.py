"""A kernel's name explained, for `kernel-tables names`: short name, class and its rule, meaning of the parts."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from kernel_tables.clean_text import visible
from kernel_tables.kernel_classes.categories import UNKNOWN, rule_for
from kernel_tables.kernel_names.short import parts_of, short_name

MAX_WRITTEN = 28  # characters of a part, before it is cut


class NameFact(NamedTuple):
    """A fact about a name: the subject, the text in the name, its meaning."""

    about: str
    written: str
    meaning: str


def explained(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> list[NameFact]:
    """The facts about a full name: its short name, its class, the rule of that class, then its parts in order."""
    rule = rule_for(name, extra_rules)
    kernel_class, reason = (rule.kernel_class, rule.reason) if rule else (UNKNOWN, "no rule fits; --class adds one")
    facts = [
        NameFact("short name", short_name(name), "more is added where another kernel of a table would have the same"),
        NameFact("class", kernel_class, reason),
    ]
    for field, pattern in rule.patterns if rule else ():
        facts.append(NameFact("rule", " ".join(pattern.split()), f"searched in {FIELDS[field]}"))
    return facts + [NameFact(part.key, part.written, part.meaning) for part in parts_of(name)]


FIELDS = {
    "operators": "the names of ATen operators",
    "own_name": "the kernel's own name, in lower case",
    "arguments": "its template arguments and parameters, in lower case",
    "full_name": "the full name",
}


def as_text(rows: Sequence[NameFact], width: int) -> str:
    """The rows as an aligned text: a meaning next to the text in the name, or below it if that is long."""
    about = max(len(row.about) for row in rows)
    written = min(MAX_WRITTEN, max(len(visible(row.written)) for row in rows))
    lines = []
    for row in rows:
        head, text = f"{row.about:<{about}}  ", visible(row.written)
        start = about + written + 4
        meaning = _lines(row.meaning, width - start)
        if len(text) > written:
            first, *more_lines = _lines(text, width - about - 2)
            lines += [head + first, *(" " * len(head) + line for line in more_lines)]
        else:
            lines.append(f"{head}{text:<{written}}  {meaning.pop(0)}".rstrip())
        lines += [" " * start + line for line in meaning]
    return "\n".join(lines) + "\n"


def _lines(text: str, width: int) -> list[str]:
    """The text in lines of this width, at least one; long words are broken."""
    return wrap(visible(text), max(width, 30), break_on_hyphens=False) or [""]
