"""One run under a profiler: Nsight Systems, or PyTorch's own if there is no nsys or no GPU.

A job leaves a JSON that says how it ended, and an SQLite file. If the job ended well, that is the capture without
anything private (kernel_tables.reading.publishable), otherwise it only holds the reason. After an incomplete capture
there is a second attempt; if that is incomplete, too, its reason is the result.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from kernel_recorder.nsys_profile import TORCH, profiler_of_this_machine
from kernel_tables.files import full_disk_as_os_error
from profile_grid.files import replacing
from profile_grid.host.processes import ranks
from profile_grid.host.processes.job import Attempt, Job
from profile_grid.host.processes.measured_program import stage_output
from profile_grid.results.capture_identity import write_specification
from profile_grid.results.results import COMPLETE
from profile_grid.stages.capture.nsys_capture import RESULT, nsys_attempt
from profile_grid.study.stages import CAPTURE

(SQLITE,), (REPORT,) = CAPTURE.files, CAPTURE.optional_files


def chosen_backend(backend: str, device: str) -> str:
    """`nsys` or `torch`: the given backend, or what `auto` means on this machine."""
    if backend != "auto":
        return backend
    return TORCH if device == "cpu" else profiler_of_this_machine()


def measure(job: Job) -> dict:
    """The content of capture.json. On success, the capture and nsys's report of every rank are in the job's folder.
    Otherwise capture.sqlite only says why there is no capture, and what was to be captured.

    Raises ProgramFailed if the measured program crashes: that is never a result.
    """
    backend = chosen_backend(job.specification["backend"], job.program["device"])
    attempt, folder, number = last_attempt(job, backend)
    is_complete = attempt.problem is None and attempt.program["status"] == COMPLETE
    facts = {"backend": backend, "nsys": attempt.nsys_version, "host_hidden": attempt.host_hidden, "attempts": number}
    facts |= rank_facts(attempt) if is_complete else {}
    output = stage_output(attempt.program, attempt.seconds, facts, attempt.problem)
    if is_complete:
        for capture in ranks.existing_rank_files(folder, SQLITE):
            write_specification(capture, job.specification)
        for path in ranks.existing_rank_files(folder, REPORT, SQLITE):
            shutil.move(path, job.folder / path.name)  # a rename within the folder: complete or not at all
    else:
        write_status_file(job.folder / SQLITE, output["status"], output["reason"], job.specification)
    return output


def last_attempt(job: Job, backend: str) -> tuple[Attempt, Path, int]:
    """The last attempt, the folder with its files, and its number from 1. No attempt follows one without a problem.
    Such an attempt may still lack times, for example because memory ran out."""
    attempt_once = nsys_attempt if backend == "nsys" else torch_attempt
    for number in range(1, CAPTURE.attempts + 1):
        folder = job.scratch / f"attempt-{number}"
        folder.mkdir()
        attempt = attempt_once(job, folder, number)
        if attempt.problem is None:
            break
    return attempt, folder, number


def torch_attempt(job: Job, folder: Path, number: int) -> Attempt:
    """An attempt under PyTorch's profiler, which runs inside the program: if it fails, the program crashes."""
    title = f"capture of {job.program['run']} (torch profiler)"
    results, outcome = ranks.results_of_ranks(job, title, folder / RESULT, profiler=TORCH, capture=folder / SQLITE)
    program, _ = ranks.merge_rank_results(results)
    return Attempt(program, {"program": outcome.seconds}, devices=ranks.devices_of(results))


def rank_facts(attempt: Attempt) -> dict:
    """{"ranks": the file, GPU and status of every rank's capture}; {} for a single rank."""
    captures = [
        {"rank": rank, "file": ranks.rank_filename(SQLITE, rank), "device": device, "status": COMPLETE}
        for rank, device in enumerate(attempt.devices)
    ]
    return {"ranks": captures} if captures else {}


def write_status_file(path: Path, status: str, reason: str | None, specification: dict) -> None:
    """Writes an SQLite file in place of a missing capture: how capturing ended, and what was to be captured."""
    with replacing(path) as partial:
        with full_disk_as_os_error(path), closing(sqlite3.connect(partial)) as database, database:
            database.execute("CREATE TABLE CAPTURE_STATUS (status TEXT NOT NULL, reason TEXT)")
            database.execute("INSERT INTO CAPTURE_STATUS VALUES (?, ?)", (status, reason))
        write_specification(partial, specification)
