"""Times every step and phase in every rank of a run, without a profiler."""

from __future__ import annotations

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_command, stage_output
from profile_grid.host.processes.ranks import merge_rank_results, rank_filename, results_of_ranks


def measure(job: Job) -> dict:
    """What timing.json holds of the process; raises ProgramFailed when it does not end well."""
    result = job.scratch / "timing.json"
    settings = {} if job.specification.get("accuracy", True) else {"accuracy": "no"}

    def command(rank: int) -> list[str]:
        output = result.with_name(rank_filename(result.name, rank))
        return program_command(job, output, lease=job.leases.address, **settings)

    ranks, outcome = results_of_ranks(job, f"timing of {job.program['run']}", result, command)
    written, facts = merge_rank_results(ranks)
    return stage_output(written, {"program": outcome.seconds}, facts)
