"""The stage of a row of the attention sweep: one process that measures attention alone at every context length."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_start, run_to_result
from profile_grid.results.results import COMPLETE, Checkout, MachineFacts, OutOfMemory, read_as

MODULE = "cs336_model.program.operator.row"


@dataclass(frozen=True)
class Cell:
    """One context length of a row: how it ended, seconds of every pass, bytes in use before the backward pass."""

    context_length: int
    status: str
    reason: str | None
    out_of_memory: OutOfMemory | None
    forward_seconds: list[float]
    backward_seconds: list[float]
    compile_seconds: float | None
    memory_before_backward_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True)
class MeasuredRow:
    """What the program wrote of a row: see cs336_model/program/operator/row.py."""

    spec: dict[str, Any]
    cells: list[Cell]
    machine: MachineFacts
    device_total_bytes: int | None
    process_seconds: float


@dataclass(frozen=True)
class RowResult:
    """sweep.json: what was told, what measured it, and what came out."""

    format: int
    specification: dict[str, Any]
    sources: str
    program: MeasuredRow
    notes: list[str]
    seconds: dict[str, float]
    started_utc: str
    git: Checkout


def swept(job: Job) -> dict:
    """What sweep.json holds of the process; raises ProgramFailed when it does not end well. A cell without figures is
    told in the row; the row itself is complete."""
    result = job.scratch / "sweep.json"
    command = [*program_start(MODULE), "--spec", json.dumps(job.program, sort_keys=True), "--output", str(result)]
    command += ["--lease", str(job.leases.address)] if job.leases.address is not None else []
    written, outcome = run_to_result(job, f"sweep of {job.program['run']}", result, command)
    return {
        "status": COMPLETE,
        "reason": None,
        "reason_code": None,
        "program": written,
        "facts": {},
        "seconds": {"program": outcome.seconds},
    }


def read_row(path: Path) -> RowResult:
    """A row's result; raises BadResult."""
    return read_as(path, RowResult)
