"""The definitions below the tables of a document: only those that it needs."""

import re

CONDITION = re.compile(r"^- \[if ([^]]+)\] ")


def needed_for(definitions: str, answers: str) -> str:
    """The definitions, one per line, that these answers need. A line that begins with "- [if PATTERN]" is left out
    unless the answers match that pattern. Empty if no definition is needed."""
    lines = []
    for line in definitions.splitlines():
        condition = CONDITION.match(line)
        if condition is None or re.search(condition[1], answers):
            lines.append(CONDITION.sub("- ", line, count=1))
    return "\n".join(lines) if any(line.startswith("- ") for line in lines) else ""
