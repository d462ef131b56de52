"""The stage without a profiler: every single time of every step and phase."""

from __future__ import annotations

from profile_grid.measuring.job import Job
from profile_grid.measuring.measured_program import program_command, run_to_result


def timed(job: Job) -> dict:
    """What timing.json holds of the process; raises ProgramFailed when it does not end well."""
    result = job.scratch / "timing.json"
    command = program_command(job, result, lease=job.leases.address)
    written, outcome = run_to_result(job, f"timing of {job.program['run']}", result, command)
    return {
        "status": written["status"],
        "reason": written["unsupported"],
        "reason_code": None,
        "program": written,
        "facts": {},
        "seconds": {"program": outcome.seconds},
    }
