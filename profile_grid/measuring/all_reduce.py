"""The stage of all-reduce alone: several sizes, one after another, between the GPUs of a run."""

from __future__ import annotations

import json

from profile_grid.measuring.job import Job
from profile_grid.measuring.measured_program import program_start, told
from profile_grid.measuring.ranks import of_rank, results_of_ranks

MODULE = "cs336_model.program.parallel.all_reduce"


def all_reduced(job: Job) -> dict:
    """What all_reduce.json holds: of its facts `ranks` is what every rank measured of each size. Raises ProgramFailed
    when a process does not end well."""
    result = job.scratch / "all_reduce.json"

    def command(rank: int) -> list[str]:
        own, lease = result.with_name(of_rank(result.name, rank)), job.leases.address
        line = [*program_start(MODULE), "--spec", json.dumps(job.program, sort_keys=True), "--output", str(own)]
        line += ["--megabytes", json.dumps(job.specification["megabytes"]), "--time-limit-s", str(job.time_limit_s)]
        return [*line, *(["--lease", str(lease)] if lease else [])]

    ranks, outcome = results_of_ranks(job, f"all-reduce of {job.program['run']}", result, command)
    return told(ranks[0], outcome, {"ranks": [one["sizes"] for one in ranks]})
