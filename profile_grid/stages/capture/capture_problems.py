"""Why the capture of a run may be wrong: errors, with which it is not used, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profile_grid.host.processes.job import Problem

if TYPE_CHECKING:
    from kernel_tables.trace import Trace
    from kernel_tables.views.completeness import Finding

NO_KERNELS = "no_kernels"
NSYS_TOO_OLD = "nsys_older_than_driver"
SETTLED = ("nsys_hedge",)  # the checks of the number of steps and their counts cover it
# nsys writes names of the host into its messages, so they are not published.
PUBLISHED = {
    "nsys_lost_events": "nsys reports that it lost events: times and counts may be too small; capture less at a time",
    "nsys_error": "nsys reports an error: what it failed to record is missing; capture again",
    "nsys_warning": "nsys printed a warning, but no loss of events is known",
    NSYS_TOO_OLD: "nsys does not know the CUDA of this driver: install a newer nsys",
}


def errors_and_warnings(
    trace: Trace, *, measured_steps: int, device: str, backend: str
) -> tuple[list[Problem], list[Problem]]:
    """(errors, warnings) of a capture. nsys records no operators of a CPU program, so their absence is neither."""
    problems: dict[str, list[Problem]] = {"error": [], "warning": []}
    for finding in trace.check(expected_steps=measured_steps, equal_steps=True):
        is_expected = finding.code == NO_KERNELS and backend == "nsys" and device == "cpu"
        is_settled = finding.severity == "warning" and finding.code in SETTLED
        problem = _published(finding)
        if not (is_expected or is_settled) and problem.code not in [known.code for known in problems[finding.severity]]:
            problems[finding.severity].append(problem)
    return problems["error"], problems["warning"]


def _published(finding: Finding) -> Problem:
    if finding.code not in PUBLISHED:
        return Problem(finding.code, finding.message)
    return Problem(finding.code, PUBLISHED[finding.code], finding.message)
