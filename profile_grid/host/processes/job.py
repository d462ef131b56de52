"""One job of a stage: its settings, folders and leases."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profile_grid.host.leases.lease_server import Leases


@dataclass(frozen=True)
class Job:
    """One stage of one run."""

    specification: dict[str, Any]
    folder: Path  # of the run
    scratch: Path  # deleted when the job ends
    log: Path
    time_limit_s: float
    leases: Leases  # of its programs

    @property
    def program(self) -> dict[str, Any]:
        """The specification of the measured program."""
        return self.specification["program"]


def utc(seconds_since_epoch: float) -> str:
    """The moment in ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds_since_epoch))
