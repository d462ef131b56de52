"""One job of a stage: what it is told, and the envelope of what it leaves behind."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profile_grid.host.leases.lease_server import Leases


@dataclass(frozen=True)
class Job:
    """One stage of one run. `folder` is the run's; `scratch` goes when the job ends; `leases` are those that its
    programs have of their GPU."""

    specification: dict[str, Any]
    folder: Path
    scratch: Path
    log: Path
    time_limit_s: float
    leases: Leases

    @property
    def program(self) -> dict[str, Any]:
        """What the measured program is told."""
        return self.specification["program"]


def utc(seconds_since_epoch: float) -> str:
    """The moment in ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds_since_epoch))
