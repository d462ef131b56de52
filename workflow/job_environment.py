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
from profile_grid.planning.estimates import Measurement, usual_seconds
from profile_grid.study.stages import STAGE_BY_NAME

SLURM_JOB = "SLURM_JOB_ID"
FURTHER_TIMINGS_RULE = "timing_again"
MEASUREMENTS_FILE = Path(".snakemake", "measurements.json")


def prepare_job_environment(root: Path) -> None:
    """Sets environment variables for the jobs: where this project and this interpreter are, what the user had set, and
    which Snakemake started the jobs, and when."""
    _put_first("PATH", os.path.dirname(sys.executable))
    _put_first("PYTHONPATH", str(root))
    os.environ["PYTHONSAFEPATH"] = "1"  # who uses this project as a module may also have a folder named workflow
    environment.record_users_values(os.environ)
    versions.set_planners_prefix()
    os.environ[WORKFLOW_VARIABLE] = str(os.getpid())
    if PLANNED_VARIABLE not in os.environ:  # else another Snakemake started this one: progress counts from its start
        os.environ[STARTED_VARIABLE] = str(time.time())


def in_allocation() -> bool:
    """Whether this Snakemake runs a job of another one inside a Slurm allocation."""
    return PLANNED_VARIABLE in os.environ and SLURM_JOB in os.environ


def prioritize_longest(workflow) -> dict[str, float]:
    """Lets the longest measurements begin first, so that GPUs do not wait for a long one at the end: the priority of a
    measurement is its estimated time in seconds. Returns the times by result file.

    Snakemake 9.0 accepts no function as a priority, so this uses undocumented attributes. If they are missing, the
    order is Snakemake's, and the progress lines have no total.
    """
    try:
        dag = workflow.persistence.dag
        jobs = [job for job in dag.needrun_jobs() if job.rule.name in (*STAGE_BY_NAME, FURTHER_TIMINGS_RULE)]
        stages = {job: STAGE_BY_NAME[job.params.stage] for job in jobs}
        specifications = {job: json.loads(job.params.specification) for job in jobs}
        seconds = {job: usual_seconds(Measurement(stages[job], specifications[job])) for job in jobs}
        # a priority that the user gave stays
        dag._priority |= {job: job_s for job, job_s in seconds.items() if not dag.priority(job)}
        return {job.output[0]: job_s for job, job_s in seconds.items()}
    except AttributeError:
        return {}


def hand_over_measurements(seconds: Mapping[str, float]) -> None:
    """Tells the jobs the estimated times of the planned measurements, by result file, so that they can print progress.
    The times are in a file, since an environment variable cannot hold those of a large grid."""
    if not seconds:
        return
    write_json(MEASUREMENTS_FILE, dict(seconds))
    os.environ[PLANNED_VARIABLE] = str(MEASUREMENTS_FILE.absolute())


def _put_first(variable: str, folder: str) -> None:
    others = [other for other in os.environ.get(variable, "").split(os.pathsep) if other and other != folder]
    os.environ[variable] = os.pathsep.join([folder, *others])
