"""Measures all-reduce alone, for several sizes, between the GPUs of a run."""

import json

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import stage_output
from profile_grid.host.processes.ranks import results_of_ranks

MODULE = "cs336_model.program.parallel.all_reduce"


def measure(job: Job) -> dict:
    """The content of all_reduce.json; `ranks` of its facts is the measurement of each size by every rank. Raises
    ProgramFailed if a process fails."""
    options = {"module": MODULE, "megabytes": json.dumps(job.specification["megabytes"])}
    results, outcome = results_of_ranks(
        job, f"all-reduce of {job.program['run']}", job.scratch / "all_reduce.json", lambda rank: options
    )
    return stage_output(results[0], {"program": outcome.seconds}, {"ranks": [result["sizes"] for result in results]})
