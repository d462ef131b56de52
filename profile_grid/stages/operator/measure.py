"""Measures an operator alone: one process that goes through every context length."""

from __future__ import annotations

import json
import sys

from profile_grid.measuring.job import Job
from profile_grid.measuring.measured_program import run_to_result, told

MODULE = "cs336_model.program.operator.row"


def measure(job: Job) -> dict:
    """What operator.json holds: of its facts `cells` is what was measured at every context length. A cell without
    figures says why; the run itself is complete. Raises ProgramFailed when the process does not end well."""
    result = job.scratch / "operator.json"
    command = [sys.executable, "-m", MODULE, "--spec", json.dumps(job.program, sort_keys=True), "--output", str(result)]
    command += ["--lease", str(job.leases.address)] if job.leases.address is not None else []
    written, outcome = run_to_result(job, f"operator of {job.program['run']}", result, command)
    return told(written, outcome, {"cells": written.pop("cells")})
