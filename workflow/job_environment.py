"""What the jobs of a workflow find in their environment."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from profile_grid.files import write_json
from profile_grid.freshness.environment import keep_users_values
from profile_grid.freshness.versions import keep_prefix
from profile_grid.host.processes.programs import WORKFLOW_VARIABLE
from profile_grid.host.progress import PLANNED_VARIABLE, STARTED_VARIABLE
from profile_grid.planning.estimates import usual_seconds
from profile_grid.study.stages import BY_NAME

SLURM_JOB = "SLURM_JOB_ID"
TIMED_AGAIN = "timing_again"  # the rule of a run's further processes
PLANNED = Path(".snakemake", "measurements.json")


def prepare_job_environment(root: Path) -> None:
    """Sets for the jobs: this project's packages, this interpreter, and whose jobs they are, since when. A Snakemake on
    a node of a cluster, started by another, counts that one's measurements."""
    _lead("PATH", os.path.dirname(sys.executable))
    _lead("PYTHONPATH", str(root))
    os.environ["PYTHONSAFEPATH"] = "1"  # whoever uses this as a module may have a folder named workflow, too
    keep_users_values(os.environ)
    keep_prefix()
    os.environ[WORKFLOW_VARIABLE] = str(os.getpid())
    if PLANNED_VARIABLE not in os.environ:
        os.environ[STARTED_VARIABLE] = str(time.time())


def in_allocation() -> bool:
    """Whether this Snakemake runs a job of another one in what Slurm has allocated to it."""
    return PLANNED_VARIABLE in os.environ and SLURM_JOB in os.environ


def longest_first(workflow) -> dict[str, float]:
    """Lets the longest of the measurements that this Snakemake has planned begin first, so that at the end no GPU waits
    for a long one on another: about the seconds of each, by its result, become its priority.

    Snakemake 9.0 takes no function for a priority. Where it keeps jobs in another way than is known here nothing is
    given, the order is its own, and the progress lines lose their total: none of that is part of what it promises.
    """
    try:
        dag = workflow.persistence.dag
        jobs = [job for job in dag.needrun_jobs() if job.rule.name in (*BY_NAME, TIMED_AGAIN)]
        seconds = {job: _seconds(job) for job in jobs}
        dag._priority |= {job: lasts for job, lasts in seconds.items() if not dag.priority(job)}
        return {job.output[0]: lasts for job, lasts in seconds.items()}
    except AttributeError:
        return {}


def _seconds(job) -> float:
    """About the seconds of a measurement."""
    return usual_seconds(BY_NAME[job.params.stage], json.loads(job.params.specification))


def count_measurements(planned: Mapping[str, float]) -> None:
    """Tells the jobs what this Snakemake has planned to measure: a file, since the environment has no room for a large
    grid."""
    if not planned:
        return
    write_json(PLANNED, dict(planned))
    os.environ[PLANNED_VARIABLE] = str(PLANNED.absolute())


def _lead(variable: str, folder: str) -> None:
    folders = [part for part in os.environ.get(variable, "").split(os.pathsep) if part and part != folder]
    os.environ[variable] = os.pathsep.join([folder, *folders])
