"""What the jobs of a workflow find in their environment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from profile_grid.measuring.processes import WORKFLOW_VARIABLE
from profile_grid.measuring.progress import STARTED_VARIABLE, TOTAL_VARIABLE
from profile_grid.study.stages import BY_NAME

SLURM_JOB = "SLURM_JOB_ID"
TIMED_AGAIN = "timing_again"  # the rule of a run's further processes


def prepare_job_environment(root: Path) -> None:
    """Sets for the jobs: this project's packages, this interpreter, and whose jobs they are, since when. A Snakemake on
    a node of a cluster, started by another, counts that one's measurements."""
    _lead("PATH", os.path.dirname(sys.executable))
    _lead("PYTHONPATH", str(root))
    os.environ["PYTHONSAFEPATH"] = "1"  # whoever uses this as a module may have a folder named workflow, too
    os.environ[WORKFLOW_VARIABLE] = str(os.getpid())
    if TOTAL_VARIABLE not in os.environ:
        os.environ[STARTED_VARIABLE] = str(time.time())


def in_allocation() -> bool:
    """Whether this Snakemake runs a job of another one in what Slurm has allocated to it."""
    return TOTAL_VARIABLE in os.environ and SLURM_JOB in os.environ


def planned_rules(workflow) -> list[str]:
    """The rule of every job that this Snakemake has planned; none where it does not tell: that is no part of what it
    promises, and only the progress lines lose their total."""
    try:
        return [job.rule.name for job in workflow.persistence.dag.needrun_jobs()]
    except AttributeError:
        return []


def count_measurements(planned_rules: Iterable[str]) -> None:
    """Sets for the jobs how many measurements this Snakemake has planned."""
    if not planned_rules:
        return
    os.environ[TOTAL_VARIABLE] = str(sum(rule in (*BY_NAME, TIMED_AGAIN) for rule in planned_rules))


def _lead(variable: str, folder: str) -> None:
    folders = [part for part in os.environ.get(variable, "").split(os.pathsep) if part and part != folder]
    os.environ[variable] = os.pathsep.join([folder, *folders])
