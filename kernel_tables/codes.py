"""The codes of all findings, which do not change: programs read them, people read the messages."""

from kernel_tables.markdown import code, compact_table

IMPOSSIBLE = {  # no figure is made of such a capture
    "damaged_file": "SQLite refuses the file: pages are damaged, cut off, lost or in each other's place",
    "wrong_type": "a column of numbers holds something else",
    "no_time": "a start, or the end of an activity, is missing",
    "negative_time": "a time is below zero",
    "ends_before_start": "an activity, a range or an API call ends before it starts",
    "outside_capture": "a time lies after the capture's own end; where it names none, 146 years on",
    "longer_than_capture": "something lasted longer than the capture says that it did itself",
    "impossible_bounds": "the capture's own start, end and duration cannot be",
    "times_overflow": "times add up to more than 64 bits hold",
    "kernels_without_names": "kernels refer to strings that are not there",
    "ranges_without_names": "ranges refer to strings that are not there",
    "too_many_open_ranges": "ranges are a thousand deep, or their paths more text than memory holds",
}
INCOMPLETE = {  # errors: figures are wrong or lacking
    "older_than_report": "the report beside the export is newer",
    "no_kernels": "no kernel was recorded",
    "no_ranges": "no range was recorded; a warning where PyTorch's profiler recorded",
    "no_api_calls": "no CUDA API call was recorded",
    "step_count": "there are more or fewer steps than asked for",
    "ranks_differ": "ranks of one run hold different numbers of steps",
    "short_steps": "steps hold fewer kernels than their twins",
    "launches_without_kernels": "launches have no kernel",
    "lost_launches": "kernels were launched within the capture by calls that were not recorded",
    "nsys_lost_events": "nsys says that it lost events",
    "nsys_error": "nsys reports an error",
}
ODD = {  # warnings: nothing is known to be lost
    "steps_vary": "steps hold different numbers of kernels",
    "launched_before": "activities were launched before the capture began",
    "collectives_differ": "ranks of one run ran different collectives in a step",
    "calls_without_names": "API calls have no names or ends, so lost launches cannot be counted",
    "ranges_left_open": "ranges were never closed",
    "several_threads": "launches inherit ranges of several other threads",
    "nsys_hedge": "nsys says that not all events might have been collected",
    "nsys_older_than_driver": "nsys does not know the driver's CUDA",
    "nsys_warning": "nsys has another warning",
}
CODES = IMPOSSIBLE | INCOMPLETE | ODD


def as_markdown() -> str:
    """All codes as a Markdown table."""
    groups = {"error, no figures": IMPOSSIBLE, "error": INCOMPLETE, "warning": ODD}
    rows = [(kind, code(name), meaning) for kind, codes in groups.items() for name, meaning in codes.items()]
    return compact_table(("severity", "code", "what was found"), rows)
