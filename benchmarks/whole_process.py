"""What a command takes as a whole process: seconds, processor seconds, peak memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Measured:
    """Seconds of wall clock and of processors, and peak memory, of one run of a command."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def fastest(command: list[str], repeats: int, limit_s: float) -> Measured | str:
    """The fastest of so many runs, or why one failed or was ended."""
    runs = []
    for _ in range(repeats):
        found = measured(command, limit_s)
        if isinstance(found, str):
            return found
        runs.append(found)
    return min(runs, key=lambda run: run.wall_s)


def measured(command: list[str], limit_s: float) -> Measured | str:
    """One run of a command, or why it failed; it is ended after `limit_s` seconds."""
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)
        timer = threading.Timer(limit_s, process.kill)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        timer.cancel()
        wall_s = time.perf_counter() - began
        if wall_s >= limit_s:
            return f"ended after {limit_s:g} s"
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        failure = failed(process.returncode, said.read().decode(errors="replace").splitlines())
    return failure or Measured(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def failed(status: int, lines: list[str]) -> str:
    """Why a command failed, empty where it did not; nsys stats ends with 0 where it knows no such report."""
    errors = [line for line in lines if line.startswith(("ERROR", "SKIPPED"))]
    if status or errors:
        return f"failed with status {status}: {' '.join(errors or lines[-1:])[:100]}"
    return ""
