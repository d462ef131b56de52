"""The resources that a measurement needs of a scheduler such as Slurm: memory, cores and time. Imports nothing
heavy."""

import math

from profile_grid.host.gpu_check import needed_bytes
from profile_grid.study.stage import Stage

CORES = 4  # of each process: Python, the backward pass's thread, the profiler's
PROCESS_MB = 6000  # PyTorch with CUDA's libraries, a profiler's buffers, the export: a guess on the safe side
START_S = 60  # Snakemake, the interpreter and imports, before the time limit counts


def host_megabytes(program: dict) -> int:
    """The host's memory in MB; on a CPU it includes the run's tensors, as far as they can be estimated."""
    tensors = needed_bytes(program) if program["device"] == "cpu" else None
    return PROCESS_MB * program["dimensions"].get("gpus", 1) + math.ceil((tensors or 0) / 1e6)


def cores(processes: int) -> int:
    """The cores of a run with this number of processes."""
    return CORES * processes


def max_minutes(stage: Stage, time_limit_s: float) -> int:
    """Minutes after which a job of this stage has ended by itself: the time limit of each attempt, and its start. So
    the job itself can report what took too long, before the scheduler kills it."""
    return math.ceil((stage.attempts * time_limit_s + START_S) / 60)
