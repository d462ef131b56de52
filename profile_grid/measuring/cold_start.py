"""The stage whose capture begins before the first step: nothing is warm, and the steps behind it show what was cold."""

from __future__ import annotations

import shutil
from dataclasses import replace

from profile_grid.measuring.capture import captured
from profile_grid.measuring.job import Job
from profile_grid.study.stages import CAPTURE, COLD_START

(SQLITE,), (CAPTURED,) = COLD_START.files, CAPTURE.files


def captured_cold(job: Job) -> dict:
    """What cold_start.json holds of the process; cold_start.sqlite is in the job's folder. The profiler's own report is
    not kept. Raises ProgramFailed when the program under test crashes."""
    folder = job.scratch / "captured"
    folder.mkdir()
    result = captured(replace(job, folder=folder))
    shutil.move(folder / CAPTURED, job.folder / SQLITE)
    return result
