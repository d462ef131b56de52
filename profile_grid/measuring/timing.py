"""The stage without a profiler: every single time of every step and phase."""

from __future__ import annotations

from profile_grid.measuring.job import Job
from profile_grid.measuring.measured_program import program_command, run_to_result


def timed(job: Job) -> dict:
    """What timing.json holds of the process; raises ProgramFailed when it does not end well."""
    result = job.scratch / "timing.json"
    written, outcome = run_to_result(
        program_command(job.program, result), f"timing of {job.program['run']}", result,
        environment=job.specification["environment"], log=job.log, time_limit_s=job.time_limit_s,
    )  # fmt: skip
    return {
        "status": written["status"],
        "reason": written["unsupported"],
        "reason_code": None,
        "program": written,
        "facts": {},
        "seconds": {"program": outcome.seconds},
    }
