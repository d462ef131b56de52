"""The program that a job measures: its command line, the process, and its result."""

import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from cs336_model.program.without_times import OVERDUE, STOPPED
from profile_grid.freshness.environment import allowed_variables
from profile_grid.host.processes import programs
from profile_grid.host.processes.job import Job, Problem
from profile_grid.results.results import INCOMPLETE

STARTER = "cs336_model.program"  # runs another module, and notes what it loads
BENCHMARK = "cs336_model.program.benchmark"
PRINTED_STACKS = re.compile(r"^Timeout \(\d+:\d\d:\d\d", re.MULTILINE)  # as faulthandler prints it


def program_command(job: Job, result_path: Path, module: str | None = None, **options: object) -> list[str]:
    """The command line of a measured program, by default BENCHMARK. It writes its result to `result_path`, as JSON.
    `options` come beside those that all programs have, or replace them; one that is None is left out."""
    options = {
        "spec": json.dumps(job.program, sort_keys=True), "output": result_path, "time_limit_s": job.time_limit_s,
        "lease": job.leases.address, **options,
    }  # fmt: skip
    arguments = {f"--{name.replace('_', '-')}": str(value) for name, value in options.items() if value is not None}
    return [sys.executable, "-m", STARTER, module or BENCHMARK, *chain.from_iterable(arguments.items())]


def run_to_result(job: Job, title: str, result_path: Path, command: Sequence[str]) -> tuple[dict, programs.ProcessExit]:
    """Runs a command of the job. Returns (its `program_result`, how it ended)."""
    with running_job_program(job, command) as program:
        outcome = program.wait()
    return program_result(job, title, result_path, outcome), outcome


def program_result(job: Job, title: str, result_path: Path, outcome: programs.ProcessExit) -> dict:
    """The `final_result` of a program of the job that wrote to `result_path`. Raises ProgramFailed, with the `title` of
    the program, if it wrote no result, or if it failed and its result does not say so."""
    result = final_result(json.loads(result_path.read_text()), outcome, job) if result_path.exists() else None
    if result is None or not (outcome.succeeded or result["status"] == STOPPED):
        raise programs.ProgramFailed(programs.failure_message(title, outcome, job.log, job.time_limit_s))
    return result


def final_result(result: dict, outcome: programs.ProcessExit, job: Job) -> dict:
    """The result of a program that has ended. Shortly before its time limit, a program writes a draft with the status
    OVERDUE. If that is all there is, it becomes a stopped result. After a crash for another reason, the draft is
    returned as it is; `program_result` then raises ProgramFailed."""
    if result["status"] != OVERDUE:
        return result
    # faulthandler prints the stacks shortly before the limit; if other threads run then, that may crash Python
    has_crashed_printing = outcome.returncode == -signal.SIGSEGV and PRINTED_STACKS.search(outcome.output(job.log))
    if not (outcome.timed_out or has_crashed_printing):
        return result
    reason = f"stopped at the time limit of {job.time_limit_s:g} s, during {result['reason']}"
    return result | {"status": STOPPED, "reason": reason}


def stage_output(program: dict | None, seconds: dict, facts: dict, problem: Problem | None = None) -> dict:
    """The content of a stage's JSON: the program's result, the seconds of each part of the job, and facts of this
    stage. Status and reason are those of the program; or, if there is a `problem`, INCOMPLETE and its text."""
    return {
        "status": INCOMPLETE if problem else program["status"],
        "reason": problem.text if problem else program["reason"],
        "reason_code": problem and problem.code,
        "program": program,
        "facts": facts,
        "seconds": seconds,
    }


def running_job_program(
    job: Job, command: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> AbstractContextManager[programs.RunningProgram]:
    """Runs a command of the job in the background of a with block: in the job's environment with these `variables`,
    within the job's time limit, with its leases."""
    return programs.running_program(
        command,
        environment=allowed_variables(os.environ, job.specification["environment"]) | variables,
        log=job.log,
        time_limit_s=job.time_limit_s,
        leases=job.leases,
    )
