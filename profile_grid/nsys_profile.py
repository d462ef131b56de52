"""Command lines of Nsight Systems for a capture and for its own reports, old and new versions."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

# The reports have had other names until 2022.4 (nsys stats --help-reports).
REPORTS = {
    "kernel_summary": ("cuda_gpu_kern_sum", "gpukernsum"),
    "nvtx_summary": ("nvtx_sum", "nvtxsum"),
    "api_summary": ("cuda_api_sum", "cudaapisum"),
}
RENAMED_IN = (2023, 1)


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


def reports(sqlite: Path, scratch: Path, version: tuple[int, ...]) -> dict[str, str]:
    """nsys's own summaries of an export as CSV text, by our name; one line of comment where nsys had nothing to say."""
    names = {ours: pair[version < RENAMED_IN] for ours, pair in REPORTS.items()}
    command = ["nsys", "stats", "--format=csv", f"--output={scratch / 'report'}", "--force-overwrite=true"]
    command += [f"--report={name}" for name in names.values()]
    done = subprocess.run([*command, str(sqlite)], capture_output=True, text=True, check=False)
    return {ours: _text(scratch / f"report_{name}.csv", name, done) for ours, name in names.items()}


def _text(path: Path, name: str, done: subprocess.CompletedProcess) -> str:
    if path.exists() and path.stat().st_size:
        return path.read_text()
    lines = (done.stderr or done.stdout).strip().splitlines()
    skipped = [line.strip() for line in lines if "SKIPPED" in line] or lines[-1:] or [f"exit status {done.returncode}"]
    return f"# nsys stats wrote no {name}: {skipped[0]}\n"
