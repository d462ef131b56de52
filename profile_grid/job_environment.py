"""What the jobs of a workflow find in their environment."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from profile_grid.progress import STARTED_VARIABLE, TOTAL_VARIABLE


def prepare_job_environment(root: Path, measurements: int) -> None:
    """Sets, for this process and so for its jobs: this project's packages, this interpreter, and what progress counts."""
    _lead("PATH", os.path.dirname(sys.executable))
    _lead("PYTHONPATH", str(root))
    os.environ[TOTAL_VARIABLE] = str(measurements)
    os.environ.setdefault(STARTED_VARIABLE, str(time.time()))


def _lead(variable: str, folder: str) -> None:
    folders = [part for part in os.environ.get(variable, "").split(os.pathsep) if part and part != folder]
    os.environ[variable] = os.pathsep.join([folder, *folders])
