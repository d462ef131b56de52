"""The nsys on PATH: where it is, which version it is, and what it exports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from kernel_tables.errors import TraceError

HOW_TO_GET_IT = "install Nsight Systems (https://developer.nvidia.com/nsight-systems) and put its nsys on PATH"


def find() -> str | None:
    """The path of nsys; None where there is none on PATH."""
    return shutil.which("nsys")


@cache
def version() -> str | None:
    """The version that nsys prints, such as "2025.3.1.90-253135822126v0"; None without an nsys that answers."""
    if find() is None:
        return None
    printed = subprocess.run(["nsys", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\S+)", printed)
    return found.group(1) if found else None


def version_numbers() -> tuple[int, ...]:
    """The version as numbers to compare with, such as (2025, 3, 1); empty where it is not known."""
    return tuple(int(part) for part in re.findall(r"\d+", (version() or "").partition("-")[0]))


def export_report(report: Path, target: Path) -> Path:
    """`target`: the SQLite export of an .nsys-rep, which appears under its name only when nsys has written it whole.

    Raises TraceError where nsys is missing, or fails, or ends well without a file.
    """
    if find() is None:
        raise TraceError(f"{report}: reading a report needs nsys, and none is on PATH; {HOW_TO_GET_IT}")
    partial = target.with_name(f".{target.name}.partial")
    command = ["nsys", "export", "--type=sqlite", "--force-overwrite=true", f"--output={partial}", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not partial.exists() or not partial.stat().st_size:
        partial.unlink(missing_ok=True)
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        said = lines[-1] if lines else "it printed nothing"
        raise TraceError(
            f"{report}: nsys {version()} ended with status {done.returncode} and exported nothing ({said});"
            " the report may be cut off, or written by a newer nsys than this one"
        )
    os.replace(partial, target)
    return target
