"""Captures a process from its very first step: later steps show what was cold in it."""

from __future__ import annotations

from profile_grid.host.processes.job import Job
from profile_grid.stages.capture.measure import captured_apart
from profile_grid.study.stages import COLD_START

(SQLITE,) = COLD_START.files


def measure(job: Job) -> dict:
    """What cold_start.json holds of the process; cold_start.sqlite is in the job's folder. Raises ProgramFailed when
    the program under test crashes."""
    return captured_apart(job, SQLITE)
