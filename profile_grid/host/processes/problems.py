"""What keeps a capture from being believed, in words that may be published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """A code for the cause, and a sentence of our own on it.

    Both are published. What another program printed is not: it may hold paths, names of hosts and users, or a token.
    `said` keeps a line of it for the terminal; all of it stands in the log.
    """

    code: str
    text: str
    said: str = ""

    def __str__(self) -> str:
        return self.text


def joined(problems: list[Problem]) -> Problem | None:
    """Several problems as one, by the code of the first; None of none."""
    if not problems:
        return None
    return Problem(problems[0].code, "; ".join(problem.text for problem in problems), problems[0].said)


def append_to_log(log: Path, text: str) -> None:
    """Keeps in the log what is not published."""
    with log.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write(f"{text}\n")
