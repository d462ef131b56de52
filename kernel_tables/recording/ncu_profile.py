"""The command line of Nsight Compute, and the ncu on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kernel_tables.counters.metrics import METRICS

VERSION = re.compile(r"Version\s+(\d[\w.]*)", re.IGNORECASE)
MATMUL = "gemm|nvjet|cutlass|cublas"
# A replay of NCCL's waits for ever for the other processes of a collective (NVIDIA/nccl#466).
MATMULS, OTHERS = f"regex:^(?!nccl).*({MATMUL})", f"regex:^(?!nccl)(?!.*({MATMUL}))"
# Launches of a name, grid and block that are counted. A matrix multiply may be of several depths: queries, keys, values
# and output projection of a block are alike, and the fifth launch of such a kernel may be one of the feed-forward.
ROUNDS = ((OTHERS, 1), (MATMULS, 5))


def find() -> Path | None:
    """The path of the ncu on PATH, None where there is none."""
    found = shutil.which("ncu")
    return Path(found) if found else None


def version(ncu: Path) -> str | None:
    """What this ncu says its version is, such as 2025.3.1.0; None where it cannot run."""
    try:
        done = subprocess.run([ncu, "--version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = VERSION.search(done.stdout)
    return found[1] if found else None


def counters_command(program: Sequence[str], table: Path, names: str, launches: int) -> list[str]:
    """`ncu` around a program: of what lies between cudaProfilerStart and cudaProfilerStop it counts the kernels of
    these `names`, so many launches of each size, and writes the table to a file. No report is written.

    Configurations are told apart by full names: without --kernel-name-base all instances of a template would be one,
    in silence; with --rename-kernels it shortens them. Clocks stay as they are, since times are not taken from here;
    caches are emptied before each pass, so that bytes are what a kernel moves where nothing is left to it in a cache.
    """
    return [
        "ncu", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all",
        "--kernel-name-base", "demangled", "--rename-kernels", "off", "--kernel-name", names,
        "--filter-mode", "per-launch-config",
        "--launch-count", str(launches), "--csv", "--page", "raw", "--print-units", "base",
        "--metrics", ",".join(metric.name for metric in METRICS), "--log-file", str(table), *program,
    ]  # fmt: skip
