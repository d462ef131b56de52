"""The environment of the jobs of a workflow."""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from profile_grid.files import write_json
from profile_grid.freshness import environment, versions
from profile_grid.host.processes.programs import WORKFLOW_VARIABLE
from profile_grid.host.progress import PLANNED_VARIABLE, STARTED_VARIABLE
from profile_grid.planning.estimates import usual_seconds
from profile_grid.study.stages import BY_NAME

SLURM_JOB = "SLURM_JOB_ID"
TIMED_AGAIN = "timing_again"  # the rule of a run's further processes
PLANNED = Path(".snakemake", "measurements.json")


def prepare_job_environment(root: Path) -> None:
    """Sets environment variables of the jobs: this project's packages, this interpreter, and the Snakemake that started
    them, with its time. If this Snakemake runs on a node for another one, the other's measurements are counted."""
    _lead("PATH", os.path.dirname(sys.executable))
    _lead("PYTHONPATH", str(root))
    os.environ["PYTHONSAFEPATH"] = "1"  # whoever uses this as a module may have a folder named workflow, too
    environment.keep_users_values(os.environ)
    versions.keep_prefix()
    os.environ[WORKFLOW_VARIABLE] = str(os.getpid())
    if PLANNED_VARIABLE not in os.environ:
        os.environ[STARTED_VARIABLE] = str(time.time())


def in_allocation() -> bool:
    """Whether this Snakemake runs a job of another one inside a Slurm allocation."""
    return PLANNED_VARIABLE in os.environ and SLURM_JOB in os.environ


def longest_first(workflow) -> dict[str, float]:
    """Lets the longest measurements begin first, so that GPUs do not wait for a long one at the end: the priority of a
    measurement is its estimated time in seconds.

    Snakemake 9.0 accepts no function as a priority, so this uses undocumented attributes. If they are missing,
    Snakemake's order applies, and the progress lines have no total.
    """
    try:
        dag = workflow.persistence.dag
        jobs = [job for job in dag.needrun_jobs() if job.rule.name in (*BY_NAME, TIMED_AGAIN)]
        seconds = {job: usual_seconds(BY_NAME[job.params.stage], json.loads(job.params.specification)) for job in jobs}
        dag._priority |= {job: lasts for job, lasts in seconds.items() if not dag.priority(job)}
        return {job.output[0]: lasts for job, lasts in seconds.items()}
    except AttributeError:
        return {}


def count_measurements(planned: Mapping[str, float]) -> None:
    """Writes the planned measurements for the jobs: to a file, since an environment variable cannot hold a large
    grid."""
    if not planned:
        return
    write_json(PLANNED, dict(planned))
    os.environ[PLANNED_VARIABLE] = str(PLANNED.absolute())


def _lead(variable: str, folder: str) -> None:
    folders = [part for part in os.environ.get(variable, "").split(os.pathsep) if part and part != folder]
    os.environ[variable] = os.pathsep.join([folder, *folders])
