"""Captures a process from its very first step, to compare it with later steps."""

from profile_grid.host.processes.job import Job
from profile_grid.stages.capture.measure import measure_separately
from profile_grid.study.stages import COLD_START

(SQLITE,) = COLD_START.files


def measure(job: Job) -> dict:
    """The content of cold_start.json; cold_start.sqlite is in the job's folder. Raises ProgramFailed if the measured
    program crashes."""
    return measure_separately(job, SQLITE)
