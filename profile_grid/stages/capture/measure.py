"""One run under a profiler: Nsight Systems, or PyTorch's own where there is no nsys or no GPU.

What a job leaves behind is one JSON that says how it ended and, where it ended well, the SQLite of the capture without
anything private (kernel_tables.reading.publishable). A capture that is not whole is tried once more; then its reason is
the result.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from kernel_recorder.gpu import TORCH, profiler_of_this_machine
from kernel_tables.files import full_disk_as_os_error
from profile_grid.files import replacing
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import Attempt, program_command, stage_output
from profile_grid.host.processes.ranks import (
    devices_of,
    existing_rank_files,
    merge_rank_results,
    rank_filename,
    results_of_ranks,
)
from profile_grid.results.capture_identity import write_specification
from profile_grid.results.results import COMPLETE
from profile_grid.stages.capture.nsys_capture import nsys_attempt
from profile_grid.study.stages import CAPTURE

(SQLITE,) = CAPTURE.files


def chosen_backend(wanted: str, device: str) -> str:
    """`nsys` or `torch`: what `auto` means on this machine, or what was asked for."""
    if wanted != "auto":
        return wanted
    return TORCH if device == "cpu" else profiler_of_this_machine()


def measure(job: Job) -> dict:
    """What capture.json holds of the process. On success capture.sqlite, and nsys's report, are in the job's folder;
    else capture.sqlite holds one table that says why there is no capture.

    Raises ProgramFailed when the program under test crashes: that is never a result.
    """
    backend = chosen_backend(job.specification["backend"], job.program["device"])
    attempt, trial, number = last_attempt(job, backend)
    complete = attempt.problem is None and attempt.program["status"] == COMPLETE
    facts = {"backend": backend, "nsys": attempt.profiler, "host_hidden": attempt.host_hidden, "attempts": number}
    facts |= ranks_captured(attempt) if complete else {}
    output = stage_output(attempt.program, attempt.seconds, facts, attempt.problem)
    if complete:
        for capture in existing_rank_files(trial, SQLITE):
            write_specification(capture, job.specification)
        publish(trial, job.folder)
    else:
        write_status(job.folder / SQLITE, output["status"], output["reason"], job.specification)
    return output


def last_attempt(job: Job, backend: str) -> tuple[Attempt, Path, int]:
    """The try that came to a capture, or the last one; the folder where it left its files, and its number from 1."""
    attempt_once = nsys_attempt if backend == "nsys" else torch_attempt
    for number in range(1, CAPTURE.attempts + 1):
        trial = job.scratch / f"attempt-{number}"
        trial.mkdir()
        attempt = attempt_once(job, trial, number)
        if attempt.problem is None:
            break
    return attempt, trial, number


def captured_apart(job: Job, name: str) -> dict:
    """The same of a stage with a capture of its own, which becomes NAME in the job's folder; the profiler's own report
    is not kept."""
    folder = job.scratch / "captured"
    folder.mkdir()
    result = measure(replace(job, folder=folder))
    shutil.move(folder / SQLITE, job.folder / name)
    return result


def torch_attempt(job: Job, trial: Path, number: int) -> Attempt:
    """A try under PyTorch's profiler, which is part of the program: what fails there is a crash."""
    result = trial / "program.json"

    def command(rank: int) -> list[str]:
        rank_result, capture = (trial / rank_filename(name, rank) for name in (result.name, SQLITE))
        return program_command(job, rank_result, "torch", capture, job.leases.address)

    ranks, outcome = results_of_ranks(job, f"capture of {job.program['run']} (torch profiler)", result, command)
    return Attempt(merge_rank_results(ranks)[0], {"program": outcome.seconds}, devices=devices_of(ranks))


def ranks_captured(attempt: Attempt) -> dict:
    """{"ranks": the capture of every rank}; {} where there is one."""
    ranks = [
        {"rank": rank, "file": rank_filename(SQLITE, rank), "device": device, "status": COMPLETE}
        for rank, device in enumerate(attempt.devices)
    ]
    return {"ranks": ranks} if ranks else {}


def write_status(path: Path, status: str, reason: str | None, specification: dict) -> None:
    """Writes an SQLite file that holds how the capture ended, and what was to be captured."""
    with replacing(path) as beside:
        with full_disk_as_os_error(path), closing(sqlite3.connect(beside)) as database, database:
            database.execute("CREATE TABLE CAPTURE_STATUS (status TEXT NOT NULL, reason TEXT)")
            database.execute("INSERT INTO CAPTURE_STATUS VALUES (?, ?)", (status, reason))
        write_specification(beside, specification)


def publish(trial: Path, folder: Path) -> None:
    """Moves what the attempt captured into the run's folder; each file appears whole or not at all."""
    for path in existing_rank_files(trial, *CAPTURE.may_leave, *CAPTURE.files):
        shutil.move(path, folder / path.name)
