"""The definitions below the tables of a document: those that it needs."""

import re

CONDITION = re.compile(r"- \[if ([^]]+)\] ")


def needed_for(definitions: str, answers: str) -> str:
    """The definitions, a line each, that these answers need: one that begins with "- [if PATTERN]" only if the answers
    match that pattern; nothing if no line is left."""
    lines = []
    for line in definitions.splitlines():
        condition = CONDITION.match(line)
        if condition is None:
            lines.append(line)
        elif re.search(condition[1], answers):
            lines.append(f"- {line[condition.end() :]}")
    return "\n".join(lines) if any(line.startswith("- ") for line in lines) else ""
