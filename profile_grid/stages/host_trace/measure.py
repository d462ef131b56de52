"""Traces the host of a run, in a separate capture, since tracing slows the program down."""

from kernel_recorder.nsys_profile import gpu_is_visible
from kernel_tables.reading import nsys
from profile_grid.host.processes.job import INSTALL_NSYS, Job, Problem
from profile_grid.host.processes.measured_program import stage_output
from profile_grid.results.results import UNSUPPORTED
from profile_grid.stages.capture.measure import measure_separately, write_status_file
from profile_grid.study.stages import HOST_TRACE

(SQLITE,) = HOST_TRACE.files
NO_GPU = Problem("no_gpu", "the host is traced while it launches on an NVIDIA GPU, and there is none here")
NO_NSYS = Problem("nsys_missing", f"the host is traced by nsys, and there is none on PATH; {INSTALL_NSYS}")


def measure(job: Job) -> dict:
    """The content of host_trace.json; host_trace.sqlite is in the job's folder. Raises ProgramFailed if the measured
    program crashes."""
    problem = _obstacle(job)
    if problem is None:
        return measure_separately(job, SQLITE)
    write_status_file(job.folder / SQLITE, UNSUPPORTED, problem.text, job.specification)
    return stage_output(None, {}, {}, problem=problem, problem_status=UNSUPPORTED)


def _obstacle(job: Job) -> Problem | None:
    """Why the host cannot be traced on this machine, found without running anything; None if it can."""
    if job.program["device"] == "cpu" or not gpu_is_visible():
        return NO_GPU
    return None if nsys.find() else NO_NSYS
