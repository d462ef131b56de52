"""One pass of a small operator, by which `doctor` finds out whether this machine can measure operators."""

import time
from collections.abc import Mapping
from pathlib import Path

from cs336_model.program.variants.values import EAGER, NOT_COMPILED
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.programs import ProgramFailed
from profile_grid.planning import doctor, smoke
from profile_grid.stages.operator.measure import measure
from profile_grid.stages.operator.stage import OPERATOR

SMALL_DIMENSIONS = {"batch_size": 1, "attention": EAGER, "compile": NOT_COMPILED}
ONE_PASS = {"warmup_passes": 0, "measured_passes": 1, "bench_s": 0}


def small_specification(plan: Mapping) -> dict:
    """The specification of one pass of eager attention over one sequence of 16 tokens."""
    specification = plan["runs"][0]["specifications"][OPERATOR.name]
    program = specification["program"]
    dimensions = program["dimensions"] | SMALL_DIMENSIONS
    changes = {"run": "smoke", "dimensions": dimensions, "context_lengths": [16], **ONE_PASS}
    return specification | {"program": program | changes}


def try_operator(
    plan: Mapping, host: doctor.Host, measurements: list, scratch: Path, time_limit_s: float, leases: Leases
) -> doctor.Trial:
    """The outcome; problems of this machine do not raise. All trials have the same parameters; some are unused here."""
    job = Job(small_specification(plan), scratch, scratch, scratch / "smoke.log", time_limit_s, leases)
    started, machine = time.monotonic(), None
    try:
        result = measure(job)
        (cell,), machine = result["facts"]["cells"], result["program"]["machine"]
        problem = None if cell["status"] == "complete" else cell["reason"] or "memory ran out"
    except ProgramFailed as error:
        problem = smoke.last_line(error)
    seconds = time.monotonic() - started
    text = f"one pass of a small operator in {seconds:.1f} s" + (f", which failed: {problem}" if problem else "")
    return doctor.Trial(machine, seconds, [doctor.DoctorLine("smoke", text, bool(problem))])
