"""Measures the energy of a process in windows of seconds, with no profiler attached."""

from __future__ import annotations

import json

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_command, run_to_result, stage_output
from profile_grid.results.results import COMPLETE
from profile_grid.study.stages import ENERGY


def measure(job: Job) -> dict:
    """What energy.json holds of the process: its facts are the counter, its tick and every window. Raises ProgramFailed
    when the process does not end well."""
    result, windows = (job.scratch / name for name in ("result.json", "windows.json"))
    settings = {name: job.specification[name] for name, setting in ENERGY.settings.items() if not setting.of_program}
    command = program_command(job, result, ENERGY.name, windows, job.leases.address, **settings)
    written, outcome = run_to_result(job, f"energy of {job.program['run']}", result, command)
    facts = json.loads(windows.read_text()) if written["status"] == COMPLETE else {}
    return stage_output(written, {"program": outcome.seconds}, facts)
