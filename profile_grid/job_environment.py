"""What the jobs of a workflow find in their environment."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from profile_grid.processes import WORKFLOW_VARIABLE
from profile_grid.progress import STARTED_VARIABLE, TOTAL_VARIABLE


def prepare_job_environment(root: Path, measurements: int) -> None:
    """Sets for the jobs: this project's packages, this interpreter, whose jobs they are, and what progress counts."""
    _lead("PATH", os.path.dirname(sys.executable))
    _lead("PYTHONPATH", str(root))
    os.environ[WORKFLOW_VARIABLE] = str(os.getpid())
    os.environ[TOTAL_VARIABLE] = str(measurements)
    os.environ.setdefault(STARTED_VARIABLE, str(time.time()))


def _lead(variable: str, folder: str) -> None:
    folders = [part for part in os.environ.get(variable, "").split(os.pathsep) if part and part != folder]
    os.environ[variable] = os.pathsep.join([folder, *folders])
