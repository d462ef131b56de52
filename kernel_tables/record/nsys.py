"""Nsight Systems: the one on this machine, its command line, and the export of its reports. Imports nothing heavy."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kernel_tables.errors import TraceError


def profile_command(report: Path, options: Sequence[str] = (), window: str | None = "cudaProfilerApi") -> list[str]:
    """`nsys profile`, to be put before a program; the report becomes `report`.nsys-rep.

    With a `window`, cudaProfilerApi or an NVTX range as "name@domain", only that is recorded, and the program goes on
    after it (the default, stop-shutdown, would end it). Sampling and context switches are off: they need rights that
    many hosts do not give. Of a replayed CUDA graph each kernel is recorded, not one row for all. `options`, in long
    form, replace those of the same name."""
    named = {option.partition("=")[0] for option in options}
    defaults = ("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node")
    command = ["nsys", "profile", *(option for option in defaults if option.partition("=")[0] not in named)]
    if window == "cudaProfilerApi":
        command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    elif window:
        command += ["--capture-range=nvtx", f"--nvtx-capture={window}", "--capture-range-end=stop"]
        command += ["--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"]  # else only registered texts are compared
    return [*command, "--force-overwrite=true", f"--output={report}", *options]


def export_report(report: Path, target: Path, payloads: bool = False) -> None:
    """Exports `report` as SQLite to `target`, completely or not at all. With `payloads`, NVTX payloads (Python stacks,
    bytes of NCCL's calls) are exported, too, if this nsys can.

    A failed export of nsys leaves a partial file, newer than its report. So nsys writes to another name, and whoever
    reads the file checks it. Raises TraceError without nsys, or if the export fails, with nsys's own reason."""
    partial = target.with_name(f".{target.stem}.{os.getpid()}.partial.sqlite")
    options = ["--type", "sqlite", "--force-overwrite", "true", "--output", str(partial)]
    if payloads and "--include-blobs" in _run(["export", "--help"], timeout_s=60).stdout:
        options += ["--include-blobs", "true"]
    try:
        export = _run(["export", *options, str(report)], timeout_s=900)
        if export.returncode or not partial.exists():
            reason = f"status {export.returncode}: {last_line(export.stderr + export.stdout)}"
            raise TraceError(f"{report}: `nsys export` failed ({reason}); use the nsys that made the report")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def last_line(text: str) -> str:
    """The last line of a message that is not empty, "nothing" without one."""
    return text.strip().rpartition("\n")[2].strip()[:200] or "nothing"


def _run(arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """The finished nsys. Raises TraceError if it cannot be started, or gives no answer."""
    if (nsys := shutil.which("nsys")) is None:
        raise TraceError("there is no nsys on PATH; install Nsight Systems, or take --profiler torch")
    try:
        return subprocess.run(
            [nsys, *arguments], capture_output=True, text=True, errors="replace", check=False, timeout=timeout_s
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise TraceError(f"nsys {arguments[0]}: {type(error).__name__}; check the installation") from error
