"""Measures the energy of a process in windows of seconds, with no profiler attached."""

import json

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_command, run_to_result, stage_output
from profile_grid.results.results import COMPLETE
from profile_grid.study.stages import ENERGY


def measure(job: Job) -> dict:
    """The content of energy.json. If the result is complete, its facts are the counter, the counter's tick and every
    window. Raises ProgramFailed if the process fails."""
    result_path, windows = job.scratch / "result.json", job.scratch / "windows.json"
    # the settings of the program are passed with its specification, these as options
    settings = {name: job.specification[name] for name, setting in ENERGY.settings.items() if not setting.of_program}
    command = program_command(job, result_path, profiler=ENERGY.name, capture=windows, **settings)
    program, outcome = run_to_result(job, f"energy of {job.program['run']}", result_path, command)
    facts = json.loads(windows.read_text()) if program["status"] == COMPLETE else {}
    return stage_output(program, {"program": outcome.seconds}, facts)
