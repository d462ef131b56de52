"""Measures all-reduce alone, for several sizes, between the GPUs of a run."""

import json

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import stage_output
from profile_grid.host.processes.ranks import results_of_ranks

MODULE = "cs336_model.program.parallel.all_reduce"


def measure(job: Job) -> dict:
    """The content of all_reduce.json: the first rank's result, and as the fact `ranks` for every rank the times of each
    size. Raises ProgramFailed if a process fails."""
    title, megabytes = f"all-reduce of {job.program['run']}", json.dumps(job.specification["megabytes"])
    results, outcome = results_of_ranks(job, title, job.scratch / "all_reduce.json", module=MODULE, megabytes=megabytes)
    return stage_output(results[0], {"program": outcome.seconds}, {"ranks": [result["sizes"] for result in results]})
