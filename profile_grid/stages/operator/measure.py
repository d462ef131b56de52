"""Measures an operator alone: one process that goes through every context length."""

from __future__ import annotations

import json

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_start, run_to_result, stage_output

MODULE = "cs336_model.program.operator.row"


def measure(job: Job) -> dict:
    """What operator.json holds: of its facts `cells` is what was measured at every context length. A cell without
    figures says why; the run itself is complete. Raises ProgramFailed when the process does not end well."""
    result = job.scratch / "operator.json"
    command = [*program_start(MODULE), "--spec", json.dumps(job.program, sort_keys=True), "--output", str(result)]
    command += ["--lease", str(job.leases.address)] if job.leases.address is not None else []
    written, outcome = run_to_result(job, f"operator of {job.program['run']}", result, command)
    cells = written.pop("cells")
    return stage_output(written, {"program": outcome.seconds}, {"cells": cells})
