"""Traces the host of a run, in a separate capture, since that slows the program down."""

from __future__ import annotations

from kernel_recorder.gpu import gpu_is_visible
from kernel_tables.reading import nsys
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import stage_output
from profile_grid.host.processes.problems import Problem
from profile_grid.results.results import UNSUPPORTED
from profile_grid.stages.capture.measure import captured_apart, write_status
from profile_grid.study.stages import HOST_TRACE

(SQLITE,) = HOST_TRACE.files
NO_GPU = Problem("no_gpu", "the host is traced while it launches on an NVIDIA GPU, and there is none here")
NO_NSYS = Problem(
    "nsys_missing",
    "the host is traced by nsys, and there is none on PATH; install Nsight Systems"
    " (https://developer.nvidia.com/nsight-systems, or the CUDA toolkit's nsight-systems package)",
)


def measure(job: Job) -> dict:
    """What host_trace.json holds of the process; host_trace.sqlite is in the job's folder. Raises ProgramFailed when
    the program under test crashes."""
    problem = _why_not_here(job)
    if problem is None:
        return captured_apart(job, SQLITE)
    write_status(job.folder / SQLITE, UNSUPPORTED, problem.text, job.specification)
    return stage_output(None, {}, {}, problem, UNSUPPORTED)


def _why_not_here(job: Job) -> Problem | None:
    """Why the host cannot be traced on this machine, found without running anything; None where it may go."""
    if job.program["device"] == "cpu" or not gpu_is_visible():
        return NO_GPU
    return None if nsys.find() else NO_NSYS
