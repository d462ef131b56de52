"""What speaks against believing the capture of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_tables.trace import Trace

NO_KERNELS = "no_kernels"
SETTLED = ("nsys_hedge",)  # the number of steps and their equal counts, which are checked, are the answer to it


def errors_and_warnings(trace: Trace, *, measured_steps: int, device: str, backend: str) -> tuple[list[str], list[str]]:
    """Messages of what is wrong and of what is odd. nsys records no operators of a CPU program, so there none lack."""
    without_kernels = backend == "nsys" and device == "cpu"
    found = [
        finding
        for finding in trace.check(expected_steps=measured_steps)
        if not (without_kernels and finding.code == NO_KERNELS)
    ]
    by_severity = {"error": [], "warning": []}
    for finding in found:
        if finding.severity == "error" or finding.code not in SETTLED:
            by_severity[finding.severity].append(finding.message)
    return by_severity["error"], by_severity["warning"]
