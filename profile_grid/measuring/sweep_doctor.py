"""What this machine can do for an attention sweep, and what would make it fail here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cs336_model.program.variants.values import EAGER, NOT_COMPILED
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.programs import ProgramFailed
from profile_grid.measuring import sweep_estimates as estimates
from profile_grid.measuring.sweep import swept
from profile_grid.planning.doctor import Host, Line, duration, free_bytes, gpu_line, memory_line, torch_line
from profile_grid.planning.smoke import last_line
from profile_grid.quantities import counted

CONTEXT_LENGTH = 16
LITTLE = {"batch_size": 1, "attention": EAGER, "compile": NOT_COMPILED}


@dataclass(frozen=True)
class SweepSmoke:
    """What came of one pass of a little operator; `machine` is None, and `problem` says why, where none ran."""

    machine: dict | None
    seconds: float
    problem: str | None = None


def smoke_specification(rows: list[Mapping]) -> dict:
    """A row of one pass with one sequence of 16 tokens, written out."""
    told = rows[0]["specification"]
    program = told["program"]
    cut = {"run": "smoke", "dimensions": program["dimensions"] | LITTLE, "context_lengths": [CONTEXT_LENGTH]}
    return told | {"program": program | cut | {"warmup_passes": 0, "measured_passes": 1}}


def smoke_pass(specification: dict, scratch: Path, time_limit_s: float, leases: Leases) -> SweepSmoke:
    """What came of it; it does not raise for what is wrong with this machine."""
    job = Job(specification, scratch, scratch, scratch / "smoke.log", time_limit_s, leases)
    started = time.monotonic()
    try:
        result = swept(job)
    except ProgramFailed as error:
        return SweepSmoke(None, time.monotonic() - started, last_line(error))
    (cell,) = result["program"]["cells"]
    problem = None if cell["status"] == "complete" else cell["reason"] or "memory ran out"
    return SweepSmoke(result["program"]["machine"], time.monotonic() - started, problem)


def report(host: Host, smoke: SweepSmoke, plan: dict, left: list[Mapping], pace: estimates.SweepPace) -> list[Line]:
    """The lines, in order; `left` are the rows that are not there yet."""
    device = plan["rows"][0]["specification"]["program"]["device"]
    what = f"one pass of a little operator in {smoke.seconds:.1f} s"
    return [
        gpu_line(host, device),
        torch_line(smoke.machine),
        Line("smoke", f"{what}{f', which failed: {smoke.problem}' if smoke.problem else ''}", bool(smoke.problem)),
        memory_line(host, device, estimates.needed_by_row(plan["rows"]), "row"),
        _time(plan, left, pace, free_bytes(host, device)),
    ]


def _time(plan: dict, left: list[Mapping], pace: estimates.SweepPace, memory_bytes: int | None) -> Line:
    every = len(plan["rows"])
    grid = f"grid {plan['grid']}: {counted(every, 'row')}, {every - len(left)} of them there"
    if not left:
        return Line("time", f"{grid}; nothing is left to measure")
    seconds, whole = estimates.seconds_needed(left, pace, memory_bytes)
    return Line(
        "time", f"{grid}; the others take {'about' if whole else 'at least'} {duration(seconds)} ({pace.source})"
    )
