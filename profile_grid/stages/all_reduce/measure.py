"""Measures all-reduce alone, for several sizes, between the GPUs of a run."""

from __future__ import annotations

import json

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_start, stage_output
from profile_grid.host.processes.ranks import rank_filename, results_of_ranks

MODULE = "cs336_model.program.parallel.all_reduce"


def measure(job: Job) -> dict:
    """What all_reduce.json holds: of its facts `ranks` is what every rank measured of each size. Raises ProgramFailed
    when a process does not end well."""
    result = job.scratch / "all_reduce.json"

    def command(rank: int) -> list[str]:
        output, lease = result.with_name(rank_filename(result.name, rank)), job.leases.address
        line = [
            *program_start(MODULE),
            "--spec",
            json.dumps(job.program, sort_keys=True),
            "--output",
            str(output),
        ]
        line += ["--megabytes", json.dumps(job.specification["megabytes"]), "--time-limit-s", str(job.time_limit_s)]
        return [*line, *(["--lease", str(lease)] if lease else [])]

    ranks, outcome = results_of_ranks(job, f"all-reduce of {job.program['run']}", result, command)
    return stage_output(ranks[0], {"program": outcome.seconds}, {"ranks": [rank["sizes"] for rank in ranks]})
