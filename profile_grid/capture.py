"""One run under a profiler: Nsight Systems, or PyTorch's own where there is no nsys or no GPU.

What a job leaves behind is one JSON that says how it ended and, where it ended well, the SQLite of the capture without
anything private (kernel_tables.publishable). A capture that is not whole is tried once more; then its reason is the
result.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_tables import nsys
from kernel_tables.errors import TraceError
from profile_grid.nsys_profile import profile_command
from profile_grid.processes import Outcome, ProgramFailed, allowed_environment, failure_message, run_program

ATTEMPTS = 2
CAPTURE_FORMAT = 1
# Statuses with which nsys itself ends a program that has not failed: none, or the end of the capture range.
ENDED_BY_NSYS = (0, 143)
NSYS_MISSING = (
    "capture.backend is nsys and there is no nsys on PATH; install Nsight Systems"
    " (https://developer.nvidia.com/nsight-systems, or the CUDA toolkit's nsight-systems package),"
    " or set capture.backend to torch"
)


@dataclass(frozen=True)
class Attempt:
    """One try at a capture: what the program reported, the seconds each part took, and why it is not whole."""

    program: dict | None
    seconds: dict[str, float] = field(default_factory=dict)
    problem: str | None = None


def program_command(program: dict, result: Path, profiler: str = "none", capture: Path | None = None) -> list[str]:
    """The command line of the measured program; `result` is the JSON it writes."""
    command = [sys.executable, "-m", "cs336_model.benchmark", "--spec", json.dumps(program, sort_keys=True)]
    command += ["--output", str(result), "--profiler", profiler]
    return command if capture is None else [*command, "--capture", str(capture)]


def chosen_backend(wanted: str, device: str) -> str:
    """`nsys` or `torch`: what `auto` means on this machine, or what was asked for."""
    if wanted != "auto":
        return wanted
    return "nsys" if device != "cpu" and nsys.find() is not None and gpu_is_visible() else "torch"


def gpu_is_visible() -> bool:
    """Whether the NVIDIA driver shows a GPU, asked without importing torch."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def run_to_result(
    command: Sequence[str], what: str, result: Path, *, environment: Sequence[str], log: Path, time_limit_s: float
) -> tuple[dict, Outcome]:
    """What the program wrote to `result`, and how it ended; raises ProgramFailed when it did not write it."""
    outcome = run_program(command, environment=allowed_environment(environment), log=log, time_limit_s=time_limit_s)
    if not outcome.succeeded or not result.exists():
        raise ProgramFailed(failure_message(what, outcome, log, time_limit_s))
    return json.loads(result.read_text()), outcome


def captured(specification: dict, folder: Path, scratch: Path, *, log: Path, time_limit_s: float) -> dict:
    """The capture's JSON: how it ended. On success capture.sqlite, and nsys's report, are in `folder`.

    Raises ProgramFailed when the program under test crashes or exceeds its time limit: that is never a result.
    """
    backend = chosen_backend(specification["backend"], specification["program"]["device"])
    attempt_once = _nsys_attempt if backend == "nsys" else _torch_attempt
    started, problems, attempt = time.time(), [], Attempt(None)
    for number in range(ATTEMPTS):
        trial = scratch / f"attempt-{number}"
        trial.mkdir()
        attempt = attempt_once(specification, trial, log, time_limit_s)
        if attempt.problem is None:
            break
        problems.append(attempt.problem)
    if attempt.problem is None and attempt.program["status"] == "complete":
        _publish(trial, folder)
    return {
        "format": CAPTURE_FORMAT,
        "status": "incomplete" if attempt.problem else attempt.program["status"],
        "reason": attempt.problem,
        "attempts": len(problems) + (attempt.problem is None),
        "backend": backend,
        "nsys": nsys.version() if backend == "nsys" else None,
        "specification": specification,
        "program": attempt.program,
        "seconds": attempt.seconds | {"all": round(time.time() - started, 3)},
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
    }


def _torch_attempt(specification: dict, trial: Path, log: Path, time_limit_s: float) -> Attempt:
    program, result = specification["program"], trial / "program.json"
    command = program_command(program, result, "torch", trial / "capture.sqlite")
    written, outcome = run_to_result(
        command, f"capture of {program['run']} (torch profiler)", result,
        environment=specification["environment"], log=log, time_limit_s=time_limit_s,
    )  # fmt: skip
    return Attempt(written, {"program": outcome.seconds})


def _nsys_attempt(specification: dict, trial: Path, log: Path, time_limit_s: float) -> Attempt:
    program, result = specification["program"], trial / "program.json"
    if nsys.find() is None:
        return Attempt(None, problem=NSYS_MISSING)
    command = profile_command(
        program_command(program, result, "nsys"),
        trial / "capture",
        options=specification["nsys_options"],
        window=program["device"] != "cpu" and gpu_is_visible(),
    )
    outcome = run_program(
        command, environment=allowed_environment(specification["environment"]), log=log, time_limit_s=time_limit_s
    )
    seconds = {"program": outcome.seconds}
    if not result.exists():
        if outcome.timed_out or outcome.returncode not in ENDED_BY_NSYS:
            raise ProgramFailed(failure_message(f"capture of {program['run']} (nsys)", outcome, log, time_limit_s))
        problem = f"nsys ended with status {outcome.returncode} before the program had written its result; see {log}"
        return Attempt(None, seconds, problem)
    written = json.loads(result.read_text())
    if written["status"] != "complete":
        return Attempt(written, seconds)
    started = time.monotonic()
    problem = _problem_of_report(trial, written, outcome, log)
    return Attempt(written, seconds | {"export": round(time.monotonic() - started, 3)}, problem)


def _problem_of_report(trial: Path, written: dict, outcome: Outcome, log: Path) -> str | None:
    """Why the report is not a whole capture, or None; on the way it becomes trial/capture.sqlite."""
    from kernel_tables.trace import Trace
    from kernel_tables.publishable import write_publishable

    report = trial / "capture.nsys-rep"
    if not report.exists() or report.stat().st_size == 0:
        return f"nsys ended with status {outcome.returncode} and wrote no report; see {log}"
    try:
        nsys.export_report(report, trial / "export.sqlite")
        write_publishable(trial / "export.sqlite", trial / "capture.sqlite")
        if written["machine"]["device"] == "cpu":  # nsys records no operators: nothing to look for
            return None
        with Trace(trial / "capture.sqlite") as trace:
            findings = trace.check(expected_steps=written["spec"]["measured_steps"])
    except TraceError as error:
        return str(error)
    return "; ".join(finding.message for finding in findings if finding.severity == "error") or None


def _publish(trial: Path, folder: Path) -> None:
    """Moves what the attempt captured into the run's folder; each file appears whole or not at all."""
    for name in ("capture.nsys-rep", "capture.sqlite"):
        if (trial / name).exists():
            shutil.move(trial / name, folder / name)
