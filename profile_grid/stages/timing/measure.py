"""Times every step and phase in every rank of a run, without a profiler."""

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import stage_output
from profile_grid.host.processes.ranks import merge_rank_results, results_of_ranks


def measure(job: Job) -> dict:
    """The content of timing.json; raises ProgramFailed if a process fails."""
    accuracy = None if job.specification.get("accuracy", True) else "no"  # of the option; None leaves it out
    results, outcome = results_of_ranks(
        job, f"timing of {job.program['run']}", job.scratch / "timing.json", accuracy=accuracy
    )
    program, facts = merge_rank_results(results)
    return stage_output(program, {"program": outcome.seconds}, facts)
