"""One run under a profiler: Nsight Systems, or PyTorch's own where there is no nsys or no GPU.

What a job leaves behind is one JSON that says how it ended and, where it ended well, the SQLite of the capture without
anything private (kernel_tables.reading.publishable). A capture that is not whole is tried once more; then its reason is
the result.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from kernel_tables.reading import nsys
from profile_grid.measuring.capture_identity import write_specification
from profile_grid.measuring.gpu_check import gpu_is_visible
from profile_grid.measuring.measured_program import Attempt, program_command, run_to_result
from profile_grid.measuring.nsys_capture import nsys_attempt
from profile_grid.measuring.results import FORMAT

ATTEMPTS = 2
PUBLISHED = ("capture.nsys-rep", "capture.sqlite")


def chosen_backend(wanted: str, device: str) -> str:
    """`nsys` or `torch`: what `auto` means on this machine, or what was asked for."""
    if wanted != "auto":
        return wanted
    return "nsys" if device != "cpu" and nsys.find() is not None and gpu_is_visible() else "torch"


def captured(specification: dict, folder: Path, scratch: Path, *, log: Path, time_limit_s: float) -> dict:
    """The capture's JSON: how it ended. On success capture.sqlite, and nsys's report, are in `folder`.

    Raises ProgramFailed when the program under test crashes: that is never a result.
    """
    backend = chosen_backend(specification["backend"], specification["program"]["device"])
    attempt_once = nsys_attempt if backend == "nsys" else torch_attempt
    started = time.time()
    for number in range(1, ATTEMPTS + 1):
        trial = scratch / f"attempt-{number}"
        trial.mkdir()
        attempt = attempt_once(specification, trial, log, time_limit_s)
        if attempt.problem is None:
            break
    if attempt.problem is None and attempt.program["status"] == "complete":
        write_specification(trial / "capture.sqlite", specification)
        publish(trial, folder)
    return {
        "format": FORMAT,
        "status": "incomplete" if attempt.problem else attempt.program["status"],
        "reason": attempt.problem and attempt.problem.text,
        "reason_code": attempt.problem and attempt.problem.code,
        "attempts": number,
        "backend": backend,
        "nsys": attempt.profiler,
        "host_hidden": attempt.host_hidden,
        "specification": specification,
        "program": attempt.program,
        "seconds": attempt.seconds | {"all": round(time.time() - started, 3)},
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
    }


def torch_attempt(specification: dict, trial: Path, log: Path, time_limit_s: float) -> Attempt:
    """One try under PyTorch's profiler, which is part of the program: what fails there is a crash."""
    program, result = specification["program"], trial / "program.json"
    written, outcome = run_to_result(
        program_command(program, result, "torch", trial / "capture.sqlite"),
        f"capture of {program['run']} (torch profiler)", result,
        environment=specification["environment"], log=log, time_limit_s=time_limit_s,
    )  # fmt: skip
    return Attempt(written, {"program": outcome.seconds})


def publish(trial: Path, folder: Path) -> None:
    """Moves what the attempt captured into the run's folder; each file appears whole or not at all."""
    for name in PUBLISHED:
        if (trial / name).exists():
            shutil.move(trial / name, folder / name)
