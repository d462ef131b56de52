"""The messages of nsys about its own capture, as findings: the only module that reads its English."""

import re
from collections.abc import Iterable, Iterator

from kernel_tables.errors import Finding, finding

NSYS_WARNING, NSYS_ERROR = 2, 3
MAX_MESSAGE = 500  # characters; a longer one is cut, and is searched no further
LOSSES = re.compile(
    r"\bdropped\b|\blost\b|incomplete .*events"
    r"|buffer.*(overflow|full|exceeded)|out of (disk space|memory)|no space left",
    re.IGNORECASE,
)
# nsys says "might" of every capture range that ends before its program does, even if nothing is lost (2025.3 on an
# H200): the counts of steps and launches then show whether anything is lost.
HEDGE = re.compile(r"not all .* might have been collected", re.IGNORECASE)
NO_LOSS = re.compile(r"\b0 .*\bdropped\b|\bdropped:?\s*0\b", re.IGNORECASE)
OF_CPU_SAMPLING = re.compile(r"sampling|perf_event|paranoid|context switch|backtrace", re.IGNORECASE)
NEWER_DRIVER = re.compile(r"driver version .* is not supported by this build", re.IGNORECASE)


def findings_of_nsys(messages: Iterable[tuple[int, str, int]]) -> Iterator[Finding]:
    """The findings in messages of nsys, given as (severity, text, number of processes with this message)."""
    for severity, text, processes in messages:
        shown = " ".join(text[:MAX_MESSAGE].split())
        text = f"{shown}..." if len(text) > MAX_MESSAGE else shown.removesuffix(".")
        source = "nsys" if processes == 1 else f"nsys, of {processes} processes"
        if judgement := _judgement(severity, text):
            code, meaning = judgement
            yield finding(code, f"{source}: {text}: {meaning}")


def _judgement(severity: int, text: str) -> tuple[str, str] | None:
    """The code and the consequence of a message of nsys; None if it is not a finding."""
    if LOSSES.search(text) and not NO_LOSS.search(text):
        return "nsys_lost_events", "times and counts may be too small; capture less at a time"
    if severity >= NSYS_ERROR and not OF_CPU_SAMPLING.search(text):
        return "nsys_error", "what it failed to record is missing; capture again"
    if HEDGE.search(text):
        return (
            "nsys_hedge",
            "nsys warns of this whenever a program outlives its capture range; figures hold unless another finding"
            " counts a loss",
        )
    if severity >= NSYS_WARNING:
        code = "nsys_older_than_driver" if NEWER_DRIVER.search(text) else "nsys_warning"
        return code, "nothing is known to be lost; nothing has to be done"
    return None
