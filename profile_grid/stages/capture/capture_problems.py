"""Why the capture of a run may be wrong: errors, because of which it is not used, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_tables.errors import ERROR, WARNING, Finding
from profile_grid.host.processes.job import Problem

if TYPE_CHECKING:
    from kernel_tables.trace import Trace

NO_KERNELS = "no_kernels"
NSYS_TOO_OLD = "nsys_older_than_driver"
REDUNDANT_WARNINGS = ("nsys_hedge",)  # covered by the checks that the steps are complete and alike
# nsys writes names of the host into its messages, so they are not published.
PUBLISHED_TEXTS = {
    "nsys_lost_events": "nsys reports that it lost events: times and counts may be too small; capture less at a time",
    "nsys_error": "nsys reports an error: what it failed to record is missing; capture again",
    "nsys_warning": "nsys printed a warning, but no loss of events is known",
    NSYS_TOO_OLD: "nsys does not know the CUDA of this driver: install a newer nsys",
}


def errors_and_warnings(
    trace: Trace, *, measured_steps: int, device: str, backend: str
) -> tuple[list[Problem], list[Problem]]:
    """(errors, warnings) of a capture. nsys records no operators of a CPU program, so their absence is no problem."""
    problem_by_code: dict[str, dict[str, Problem]] = {ERROR: {}, WARNING: {}}  # the first of each code
    for finding in trace.check(expected_steps=measured_steps, equal_steps=True):
        is_expected = finding.code == NO_KERNELS and backend == "nsys" and device == "cpu"
        is_redundant = finding.severity == WARNING and finding.code in REDUNDANT_WARNINGS
        if not (is_expected or is_redundant):
            problem_by_code[finding.severity].setdefault(finding.code, _problem(finding))
    return list(problem_by_code[ERROR].values()), list(problem_by_code[WARNING].values())


def _problem(finding: Finding) -> Problem:
    """The finding as a problem. A message that contains text of nsys becomes only its quote, which is not published."""
    if finding.code not in PUBLISHED_TEXTS:
        return Problem(finding.code, finding.message)
    return Problem(finding.code, PUBLISHED_TEXTS[finding.code], finding.message)
