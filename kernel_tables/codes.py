"""The codes of all findings, which do not change: programs read them, people read the messages."""

from kernel_tables.markdown import code, compact_table

IMPOSSIBLE = {  # no table is made from such a capture
    "damaged_file": "SQLite refuses the file: pages are damaged, truncated, lost or exchanged",
    "wrong_type": "a column of numbers holds something else",
    "no_time": "a start, or the end of an activity, is missing",
    "negative_time": "a time is below zero",
    "ends_before_start": "an activity, a range or an API call ends before it starts",
    "outside_capture": "a time is after the capture's end (after 146 years, if the capture names no end)",
    "longer_than_capture": "something lasted longer than the capture's stated duration",
    "impossible_bounds": "the capture's start, end or duration is invalid",
    "times_overflow": "sums of times exceed 64 bits",
    "kernels_without_names": "kernels refer to missing strings",
    "ranges_without_names": "ranges refer to missing strings",
    "too_many_open_ranges": "ranges are a thousand deep, or their paths exceed the memory limit",
}
INCOMPLETE = {  # errors: numbers are wrong or missing
    "older_than_report": "the report next to the export is newer",
    "no_kernels": "no kernel was recorded",
    "no_ranges": "no range was recorded; a warning if PyTorch's profiler recorded",
    "no_api_calls": "no CUDA API call was recorded",
    "step_count": "there are more or fewer steps than expected",
    "ranks_differ": "ranks of one run hold different numbers of steps",
    "short_steps": "steps hold fewer kernels than is usual among them",
    "launches_without_kernels": "launches have no kernel",
    "lost_launches": "kernels were launched within the capture by calls that were not recorded",
    "nsys_lost_events": "nsys reports lost events",
    "nsys_error": "nsys reports an error",
}
ODD = {  # warnings: nothing is known to be lost
    "steps_vary": "steps hold different numbers of kernels",
    "launched_before": "activities were launched before the capture began",
    "collectives_differ": "ranks of one run ran different collectives in a step",
    "calls_without_names": "API calls have no names or ends, so lost launches cannot be counted",
    "ranges_left_open": "ranges were never closed",
    "several_threads": "launches inherit ranges of several other threads",
    "nsys_hedge": "nsys warns that some events may be missing",
    "nsys_older_than_driver": "nsys does not know the driver's CUDA",
    "nsys_warning": "nsys reports another warning",
}
CODES = IMPOSSIBLE | INCOMPLETE | ODD


def as_markdown() -> str:
    """All codes as a Markdown table."""
    groups = {"error, no tables": IMPOSSIBLE, "error": INCOMPLETE, "warning": ODD}
    rows = [(kind, code(name), meaning) for kind, codes in groups.items() for name, meaning in codes.items()]
    return compact_table(("severity", "code", "meaning"), rows)
