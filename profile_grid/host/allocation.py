"""What a measurement asks of a scheduler such as Slurm: memory of the host and time. Imports nothing heavy."""

from __future__ import annotations

import math

from profile_grid.host.gpu_check import needed_bytes
from profile_grid.study.stage import Stage

CORES = 4  # of each process: Python, the backward pass's thread, the profiler's
PROCESS_MB = 6000  # PyTorch with CUDA's libraries, a profiler's buffers, the export: a guess on the safe side
START_S = 60  # Snakemake, the interpreter and imports, before the time limit counts


def host_megabytes(program: dict) -> int:
    """The host's memory in MB: on the processor the run's tensors are there too, as far as they can be estimated."""
    tensors = needed_bytes(program) if program["device"] == "cpu" else None
    return PROCESS_MB * program["dimensions"].get("gpus", 1) + math.ceil((tensors or 0) / 1e6)


def cores(processes: int) -> int:
    """The cores of a run of so many processes."""
    return CORES * processes


def minutes_at_most(stage: Stage, time_limit_s: float) -> int:
    """Minutes after which a job of this stage has ended by itself: the time limit of each of its attempts, and its
    start. So it is the job that says what took too long, and not the scheduler that kills it."""
    return math.ceil((stage.attempts * time_limit_s + START_S) / 60)
