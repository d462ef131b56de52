"""The messages of nsys about its own capture, as findings; they are recognized by their English."""

import re
from collections.abc import Iterable, Iterator

from kernel_tables.errors import Finding, finding
from kernel_tables.reading.small_tables import NSYS_ERROR, NSYS_WARNING, NsysMessage

MAX_MESSAGE = 500  # characters; a longer one is cut, and is searched no further
LOSSES = re.compile(
    r"\bdropped\b|\blost\b|incomplete .*events"
    r"|buffer.*(overflow|full|exceeded)|out of (disk space|memory)|no space left",
    re.IGNORECASE,
)
# nsys writes this whenever a program outlives its capture range, even if nothing is lost (2025.3 on an H200). The other
# findings, from counts of steps and launches, show whether anything was.
HEDGE = re.compile(r"not all .* might have been collected", re.IGNORECASE)
NO_LOSS = re.compile(r"\b0 .*\bdropped\b|\bdropped:?\s*0\b", re.IGNORECASE)
OF_CPU_SAMPLING = re.compile(r"sampling|perf_event|paranoid|context switch|backtrace", re.IGNORECASE)
NEWER_DRIVER = re.compile(r"driver version .* is not supported by this build", re.IGNORECASE)


def findings_of_nsys(messages: Iterable[NsysMessage]) -> Iterator[Finding]:
    """The findings in messages of nsys."""
    for severity, full_text, process_count in messages:
        text = " ".join(full_text[:MAX_MESSAGE].split())
        text = f"{text}..." if len(full_text) > MAX_MESSAGE else text.removesuffix(".")
        source = "nsys" if process_count == 1 else f"nsys, of {process_count} processes"
        if judgement := _judgement(severity, text):
            code, meaning = judgement
            yield finding(code, f"{source}: {text}: {meaning}")


def _judgement(severity: int, text: str) -> tuple[str, str] | None:
    """The code and the meaning of a message of nsys; None if it is not a finding."""
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
