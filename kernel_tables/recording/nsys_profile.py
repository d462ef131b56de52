"""The command line of a capture under Nsight Systems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def profile_command(
    program: Sequence[str], report: Path, *, options: Sequence[str] = (), window: bool = True
) -> list[str]:
    """`nsys profile` around a program; the report becomes `report`.nsys-rep.

    With `window`, only what lies between cudaProfilerStart and cudaProfilerStop is recorded, and the program goes on
    after it (the default, stop-shutdown, would end it). Neither sampling nor context switches are asked for: they need
    rights that many hosts do not give, and no question here needs them.
    """
    command = ["nsys", "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
    if window:
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    return [*command, f"--output={report}", *options, *program]
