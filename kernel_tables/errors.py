"""What is wrong with a capture: one thing found, and the exception that a reader of captures has to catch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_tables.codes import CODES

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Finding:
    """One thing found: what is wrong, what it means for the figures, what to do."""

    severity: str  # error: figures are wrong or lacking; warning: odd, but nothing is lost
    code: str  # one of codes.CODES
    message: str  # one line

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is no code of codes.py")


class TraceError(Exception):
    """A capture cannot be read; the message is one line: the fact, the likely cause, the next step."""


class NotConserved(TraceError):
    """Time or launches were lost or invented on the way from a capture to a table, or two tables of one run disagree.

    It is a defect, or tables of different captures; never a result.
    """


class ImpossibleCapture(TraceError):
    """The file is damaged or holds what cannot be, so no figure is made from it; `findings` say what."""

    def __init__(self, path: Path, findings: Sequence[Finding]):
        self.findings = tuple(findings)
        more = len(findings) - 1
        super().__init__(f"{path}: {findings[0].message}" + (f" (`check` tells {more} more)" if more else ""))


def impossible(path: Path, code: str, message: str) -> ImpossibleCapture:
    """The exception for one thing that cannot be."""
    return ImpossibleCapture(path, [Finding(ERROR, code, message)])
