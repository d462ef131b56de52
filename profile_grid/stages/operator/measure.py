"""Measures an operator alone: one process that goes through every context length."""

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_command, run_to_result, stage_output

MODULE = "cs336_model.program.operator.row"


def measure(job: Job) -> dict:
    """The content of operator.json. Its facts have `cells`, the measurement of every context length. A cell without
    times has a status that says why; the run itself is complete. Raises ProgramFailed if the process fails."""
    result_path = job.scratch / "operator.json"
    command = program_command(job, result_path, MODULE)
    program, outcome = run_to_result(job, f"operator of {job.program['run']}", result_path, command)
    cells = program.pop("cells")
    return stage_output(program, {"program": outcome.seconds}, {"cells": cells})
