"""What is wrong with a capture: findings with their codes, and the exceptions that a reader of captures has to catch.

Programs read the codes, which do not change; people read the messages.
"""

from dataclasses import dataclass
from pathlib import Path

ERROR, WARNING = "error", "warning"
# Keys among the facts of a capture: its rank, and how many there are; what `record` noted about its window, as JSON; of
# JSON of torch.profiler, what it lacks, and the nanoseconds of which all its times are multiples.
RANK_KEY, RANKS_KEY, WINDOW_KEY = "RECORDED_RANK", "RECORDED_RANKS", "RECORDED_WINDOW"
NOTES_KEY, RESOLUTION_KEY = "TRACE_NOTES", "TRACE_RESOLUTION_NS"
BAD_KEY = "TRACE_BAD_EVENTS"  # how many events of JSON were left out, or repaired
# The codes of findings, which docs/finding-codes.md explains.
IMPOSSIBLE = (  # no table is made from such a capture
    "invalid_json", "damaged_file", "wrong_type", "no_time", "negative_time", "ends_before_start", "outside_capture",
    "longer_than_capture", "impossible_bounds", "times_overflow", "kernels_without_names", "ranges_without_names",
    "too_many_open_ranges",
)  # fmt: skip
INCOMPLETE = (  # errors: numbers are wrong or missing
    "no_kernels", "no_ranges", "no_api_calls", "step_count", "ranks_differ", "short_steps", "launches_without_kernels",
    "lost_launches", "steps_without_kernels", "zero_time", "negative_duration", "starts_before_launch", "overlaps_next",
    "outlasts_host", "only_library_ranges", "nsys_lost_events", "nsys_error",
)  # fmt: skip
ODD = (  # warnings: nothing is known to be lost
    "bad_events", "steps_vary", "whole_microseconds", "launched_before", "collectives_differ", "graphs_as_one",
    "nodes_not_recorded", "calls_without_names", "ranges_left_open", "nsys_hedge", "nsys_older_than_driver",
    "nsys_warning",
)  # fmt: skip
CODES = (*IMPOSSIBLE, *INCOMPLETE, *ODD)


@dataclass(frozen=True)
class Finding:
    """What is wrong, what it means for the figures, and what to do."""

    severity: str  # error: figures are wrong or missing; warning: odd, but nothing is known to be lost
    code: str  # one of CODES
    message: str  # one line

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is not one of CODES")


def finding(code: str, message: str) -> Finding:
    """A finding with the severity of its code."""
    return Finding(WARNING if code in ODD else ERROR, code, message)


class TraceError(Exception):
    """A capture, option or rule cannot be used; the message is one line: the fact, the likely cause, the next step."""


class NotConserved(TraceError):
    """Time or launches were lost or added between a capture and a table, or two tables of one run disagree.

    It is a defect, or the tables are of different captures."""


class ImpossibleCapture(TraceError):
    """The file is damaged or contradicts itself, so no figure is made from it; `findings` say why."""

    def __init__(self, path: Path, code: str, message: str):
        self.findings = (finding(code, message),)
        super().__init__(f"{path}: {message}")
