"""The command line of Nsight Compute, and the ncu on this machine."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_tables.counters.metrics import METRICS, OPERATION_INDICATORS, STALLS, TENSOR_OPERATIONS, Metric

VERSION = re.compile(r"Version\s+(\d[\w.]*)", re.IGNORECASE)
MATMUL = "gemm|nvjet|cutlass|cublas|_(add|badd)?b?mm_"
# How names of PyTorch's own kernels, CUB's and a compiler's passes over memory begin: these use no tensor cores.
NO_MATMUL = r"(void.)?(at|at_cuda_detail|cub)::|triton_(poi|red|per)_|.*softmax_warp_"
# A replayed kernel of NCCL waits forever for the other processes of a collective (NVIDIA/nccl#466).
ALL_KERNELS, MATMUL_KERNELS = "regex:^(?!nccl)", f"regex:^(?!nccl)((?!{NO_MATMUL})|.*({MATMUL}))"


@dataclass(frozen=True)
class Round:
    """What one process counts: these metrics, for this number of `launches` of each launch size of the kernels whose
    names match the pattern."""

    kernel_pattern: str
    launches: int
    metrics: tuple[Metric, ...]
    halves_layers: bool = False  # the model has half as many layers as in other rounds, at least one


# Of matrix multiplies, five launches are counted, since those with one name, grid and block may differ in depth (the
# inner dimension): four projections of attention are alike, and the fifth launch may be one of the feed-forward. What
# warps wait for is counted only for the first launch. Tensor-core operations are counted only in kernels that may run
# any: on an H200, they take 0.10 of the 0.25 s that a launch takes with all metrics. More rounds with fewer metrics
# each would take longer, since each round is a process that creates the model.
TENSOR_METRICS, STALL_METRICS = set(TENSOR_OPERATIONS.values()), set(STALLS.values())
ROUNDS = (
    Round(
        ALL_KERNELS, launches=1,
        metrics=(*(metric for metric in METRICS if metric.name not in TENSOR_METRICS), *OPERATION_INDICATORS),
    ),
    Round(
        MATMUL_KERNELS, launches=5, halves_layers=True,
        metrics=tuple(metric for metric in METRICS if metric.name not in STALL_METRICS),
    ),
)  # fmt: skip


def find() -> Path | None:
    """The path of the ncu on PATH, None if there is none."""
    path = shutil.which("ncu")
    return Path(path) if path else None


def version(ncu: Path) -> str | None:
    """The version of this ncu, such as 2025.3.1.0; None if it cannot run."""
    try:
        process = subprocess.run([ncu, "--version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = VERSION.search(process.stdout)
    return match[1] if match else None


def counters_command(program: Sequence[str], table_path: Path, ncu_round: Round) -> list[str]:
    """`ncu` around a program: counts a round between cudaProfilerStart and cudaProfilerStop, and writes the table to a
    file. No report is written.

    Configurations are distinguished by full names: without --kernel-name-base all instances of a template would be
    one, without notice; --rename-kernels would shorten them. Clocks are not changed, since counted times only tell
    launches apart; caches are emptied before each pass, so that bytes are those of a kernel that finds nothing cached.
    """
    return [
        "ncu", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all",
        "--import-sass", "off", "--kernel-name-base", "demangled", "--rename-kernels", "off",
        "--kernel-name", ncu_round.kernel_pattern, "--filter-mode", "per-launch-config",
        "--launch-count", str(ncu_round.launches), "--csv", "--page", "raw", "--print-units", "base",
        "--metrics", ",".join(metric.name for metric in ncu_round.metrics), "--log-file", str(table_path), *program,
    ]  # fmt: skip
