"""What speaks against believing a capture's figures: losses are errors, oddities that lose nothing are warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.trace import Trace


@dataclass(frozen=True)
class Finding:
    """One thing found: what is wrong, what it means for the figures, what to do."""

    severity: str  # error: figures are wrong or lacking; warning: odd, but nothing is lost
    code: str
    message: str


def findings(trace: Trace, expected_steps: int | None, step_name: str) -> list[Finding]:
    """The findings, errors first."""
    found = [finding for check in CHECKS for finding in check(trace)]
    return sorted(found, key=lambda finding: finding.severity != "error")


def as_table(found: list[Finding]) -> pd.DataFrame:
    """One row per finding: severity, code, message."""
    import pandas as pd

    return pd.DataFrame([vars(finding) for finding in found], columns=["severity", "code", "message"])


def _no_kernels(trace: Trace) -> list[Finding]:
    return [] if len(trace.gpu_activities) else [Finding("error", "no_kernels", "no kernel was recorded")]


CHECKS = (_no_kernels,)
