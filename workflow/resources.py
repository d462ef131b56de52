"""The resources that the jobs of a run request from a scheduler, by their wildcards."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from profile_grid.host.gpu_check import needed_bytes
from profile_grid.study.stage import Stage

CORES = 4  # of each process: Python, the backward pass's thread, the profiler's threads
PROCESS_MB = 6000  # PyTorch with CUDA's libraries, a profiler's buffers, the export: an upper estimate
START_S = 60  # Snakemake, the interpreter and imports, before the time limit begins to count


def host_megabytes(program: dict) -> int:
    """The host's memory in MB; on a CPU it includes the run's tensors, as far as they can be estimated."""
    tensor_bytes = needed_bytes(program) if program["device"] == "cpu" else None
    return PROCESS_MB * program["dimensions"].get("gpus", 1) + math.ceil((tensor_bytes or 0) / 1e6)


def max_minutes(stage: Stage, time_limit_s: float) -> int:
    """Minutes after which a job of this stage has ended by itself: the time limit of each attempt, and its start. So
    the job itself can report what took too long, before the scheduler kills it."""
    return math.ceil((stage.attempts * time_limit_s + START_S) / 60)


@dataclass(frozen=True)
class JobResources:
    """The resources of the jobs of all runs. `specifications` has the JSON of each job by its stage and run. Jobs that
    run inside an allocation of a scheduler request no GPUs and no cores."""

    runs: Mapping[str, Mapping]
    specifications: Mapping[str, Mapping[str, str]]
    has_gpus: bool
    in_allocation: bool

    def gpus(self, wildcards) -> int:
        """The number of GPUs that a job requests."""
        return self.runs[wildcards.run]["gpus"] if self.has_gpus and not self.in_allocation else 0

    def cores(self, wildcards) -> int:
        """The number of cores of a job; -1 for no request: in an allocation, the requests of a group of jobs would add
        up."""
        return -1 if self.in_allocation else CORES * self.runs[wildcards.run]["gpus"]

    def memory_mb(self, stage: Stage) -> Callable[..., int]:
        """A function of wildcards: the host memory of a job of this stage, in MB."""
        return lambda wildcards: host_megabytes(json.loads(self.specifications[stage.name][wildcards.run])["program"])

    def group(self, wildcards) -> str:
        """The name of the group of a run's jobs, the same for all runs with as many GPUs. Snakemake submits connected
        jobs of a group as one job, so one per run, or with `--group-components gpus_1=8` one per eight runs. It never
        joins groups of different names."""
        return f"gpus_{self.runs[wildcards.run]['gpus']}"
