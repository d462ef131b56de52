"""What is wrong with a capture: findings with their codes, and the exceptions that a reader of captures has to catch.

Programs read the codes, which do not change; people read the messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ERROR, WARNING = "error", "warning"
# Keys among the facts of a capture: its rank, and how many there are; what `record` noted about its window, as JSON; of
# JSON of torch.profiler, what it lacks, where it is invalid, and the nanoseconds of which all its times are multiples.
RANK_KEY, RANKS_KEY, WINDOW_KEY = "RECORDED_RANK", "RECORDED_RANKS", "RECORDED_WINDOW"
NOTES_KEY, DAMAGE_KEY, RESOLUTION_KEY = "TRACE_NOTES", "TRACE_DAMAGE", "TRACE_RESOLUTION_NS"
BAD_KEY = "TRACE_BAD_EVENTS"  # how many events of JSON were left out, or repaired
IMPOSSIBLE = {  # no table is made from such a capture
    "invalid_json": "the JSON of a trace is invalid, or cut off",
    "damaged_file": "SQLite refuses the file: pages are damaged, truncated, lost or exchanged",
    "wrong_type": "a column of numbers holds something else",
    "no_time": "a start, or the end of an activity, is missing",
    "negative_time": "a time is below zero",
    "ends_before_start": "a range or an API call ends before it starts",
    "outside_capture": "a time is after the capture's end (or over 146 years, if the capture states no end)",
    "longer_than_capture": "something lasted longer than the capture's stated duration",
    "impossible_bounds": "the capture's start, end or duration is invalid",
    "times_overflow": "sums of times exceed 64 bits",
    "kernels_without_names": "kernels refer to missing strings",
    "ranges_without_names": "ranges refer to missing strings",
    "too_many_open_ranges": "ranges are a thousand deep",
}
INCOMPLETE = {  # errors: numbers are wrong or missing
    "no_kernels": "no kernel was recorded",
    "no_ranges": "no range was recorded; a warning if PyTorch's profiler recorded",
    "no_api_calls": "no CUDA API call was recorded",
    "step_count": "there are more or fewer steps than expected",
    "ranks_differ": "ranks of one run hold different numbers of steps",
    "short_steps": "the CUDA trace stopped before the last step ended, or lost kernels of steps",
    "launches_without_kernels": "launches have no kernel",
    "lost_launches": "kernels were launched within the capture by calls that were not recorded",
    "steps_without_kernels": "steps hold no kernel, though the host launched in them",
    "zero_time": "activities have no time: they start and end at 0, or take none",
    "negative_duration": "activities end before they start",
    "starts_before_launch": "activities start a millisecond or more before the call that launched them",
    "overlaps_next": "activities still run when the next one on their stream has ended",
    "outlasts_host": "activities of a trace are longer than all that the host did, and end a second or more later",
    "only_library_ranges": "all ranges are of libraries; those of the program are missing",
    "nsys_lost_events": "nsys reports lost events",
    "nsys_error": "nsys reports an error",
    "read_up_to_damage": "the JSON of a trace is invalid, and only what comes before the damage was read",
}
ODD = {  # warnings: nothing is known to be lost
    "bad_events": "events of a trace have no time, or something in them has a wrong type; they are left out",
    "steps_vary": "steps hold different numbers of kernels, and nothing shows a loss",
    "whole_microseconds": "times are whole microseconds, so short kernels count as 0 or 1 µs",
    "launched_before": "activities were launched before the capture began",
    "collectives_differ": "ranks of one run ran different collectives in a step",
    "graphs_as_one": "replays of CUDA graphs were recorded as one activity each, without their kernels",
    "nodes_not_recorded": "replayed activities run nodes of graphs that were captured before the recording",
    "calls_without_names": "API calls have no names or ends, so lost launches cannot be counted",
    "ranges_left_open": "ranges were never closed",
    "profiler_overhead": "the GPU did nothing for 5 % of the time or more while the profiler itself was busy",
    "nsys_hedge": "nsys warns that some events may be missing",
    "nsys_older_than_driver": "nsys does not know the driver's CUDA",
    "nsys_warning": "nsys reports another warning",
}
CODES = IMPOSSIBLE | INCOMPLETE | ODD


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

    It is a defect, or the tables are of different captures.
    """


class ImpossibleCapture(TraceError):
    """The file is damaged or contradicts itself, so no figure is made from it; `findings` say why."""

    def __init__(self, path: Path, findings: Sequence[Finding]):
        self.findings = tuple(findings)
        more = len(findings) - 1
        super().__init__(f"{path}: {findings[0].message}" + (f" (`check` lists {more} more)" if more else ""))


def impossible(path: Path, code: str, message: str) -> ImpossibleCapture:
    """The exception for a single finding."""
    return ImpossibleCapture(path, [finding(code, message)])
