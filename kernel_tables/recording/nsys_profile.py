"""The command line of a capture under Nsight Systems."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

OF_THE_HOST = OS_RUNTIME, PYTHON = ("osrt", "python")


def profile_command(
    program: Sequence[str],
    report: Path,
    *,
    options: Sequence[str] = (),
    window: bool = True,
    host: Collection[str] = (),
) -> list[str]:
    """`nsys profile` around a program; the report becomes `report`.nsys-rep.

    With `window`, only what lies between cudaProfilerStart and cudaProfilerStop is recorded, and the program goes on
    after it (the default, stop-shutdown, would end it). Neither sampling nor context switches are asked for: they need
    rights that many hosts do not give, and no question here needs them. HOST adds what slows the program down: calls of
    the OS runtime of 1 µs and longer, and a thousand Python stacks a second.
    """
    trace = ",".join(["cuda", "nvtx", *([OS_RUNTIME] if OS_RUNTIME in host else [])])
    command = ["nsys", "profile", f"--trace={trace}", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
    if PYTHON in host:
        command.append("--python-sampling=true")
    if window:
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    return [*command, f"--output={report}", *options, *program]
