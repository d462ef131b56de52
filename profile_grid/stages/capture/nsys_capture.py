"""One attempt at a capture under Nsight Systems, and why it is incomplete.

nsys may be missing or unable to run, fail, hang, end well without a report, or write one that lacks kernels or ranges.
Each of these is a `Problem` in words of this project, so that all runs with the same cause have the same reason; the
output of nsys is in the log. Only a crash of the measured program itself, or a change of its code, raises.
"""

import os
import time
from dataclasses import replace
from pathlib import Path

from cs336_model.program.variants.values import NOT_COMPILED
from cs336_model.ranges import DOMAIN, MEASURE, RECORDING
from kernel_recorder.nsys_profile import CUDA_CALLS, NSYS, gpu_is_visible, profile_command
from kernel_tables.errors import ImpossibleCapture, TraceError
from kernel_tables.reading import nsys
from kernel_tables.reading.publishable import write_publishable
from profile_grid.freshness.environment import allowed_variables
from profile_grid.host.processes import programs, ranks
from profile_grid.host.processes.job import INSTALL_NSYS, Attempt, Job, Problem, combined_problem
from profile_grid.host.processes.measured_program import program_command
from profile_grid.results.results import COMPLETE
from profile_grid.stages.capture.capture_problems import errors_and_warnings
from profile_grid.stages.capture.nsys_sandbox import namespace_command, neutral_folder
from profile_grid.study.stages import CAPTURE

RESULT = "program.json"  # the result of the measured program, in the folder of the attempt
(SQLITE,), (REPORT,) = CAPTURE.files, CAPTURE.optional_files
NSYS_MISSING = Problem(
    "nsys_missing",
    f"capture.backend is nsys and there is no nsys on PATH; {INSTALL_NSYS}, or set capture.backend to torch",
)
CANNOT_RUN = "nsys is on PATH and cannot report its version: it does not run here; try `nsys --version`"
NOT_EXPORTED = "nsys cannot export its own report: it is damaged, or the disk is full"
UNREADABLE = "nsys exported its report, and the export cannot be read: it is cut short, or the disk is full"


def nsys_attempt(job: Job, folder: Path, number: int) -> Attempt:
    """The attempt with this number, from 1. If it succeeds, the reports and captures of all ranks are in `folder`."""
    if nsys.find() is None:
        return Attempt(None, problem=NSYS_MISSING)
    try:
        version = nsys.version()
    except TraceError as error:
        return Attempt(None, problem=_logged_problem(job, "nsys_cannot_run", CANNOT_RUN, error))
    outcome = _run_nsys(job, folder, number)
    seconds, host_hidden = {"program": outcome.seconds}, bool(namespace_command())
    attempt = Attempt(None, seconds, nsys_version=version, host_hidden=host_hidden)
    results = ranks.read_rank_results(job, folder / RESULT, outcome)
    if not results:
        return replace(attempt, problem=_missing_result_problem(job, outcome))
    program, _ = ranks.merge_rank_results(results)
    if program["status"] != COMPLETE:
        return replace(attempt, program=program)
    started = time.monotonic()
    problem = _first_report_problem(job, folder, results, outcome)
    seconds = attempt.seconds | {"export": round(time.monotonic() - started, 3)}
    return replace(attempt, program=program, seconds=seconds, problem=problem, devices=ranks.devices_of(results))


def _run_nsys(job: Job, folder: Path, number: int) -> programs.ProcessExit:
    """Runs every rank under an nsys of its own, and returns how all of it ended. `folder` then holds the report and the
    result of each rank: capture.nsys-rep and program.json, capture_rank1.nsys-rep and program_rank1.json, ..."""
    logs = folder / ranks.LOG_FOLDER
    logs.mkdir()
    with neutral_folder() as sandbox:
        output_folder = Path(sandbox.alias(folder))
        lease = job.leases.address and sandbox.alias(job.leases.address)

        def rank_command(rank: int) -> list[str]:
            result_path = ranks.rank_path(output_folder / RESULT, rank)
            return profile_command(
                sandbox.command(program_command(job, result_path, profiler=NSYS, lease=lease)),
                ranks.rank_path(output_folder / REPORT, rank).with_suffix(""),  # nsys adds the suffix
                options=job.specification["nsys_options"],
                window=_window(job, number),
            )

        rank_commands = [rank_command(rank) for rank in range(ranks.rank_count(job.program))]
        launch_command = ranks.launch_command(output_folder / ranks.LOG_FOLDER, rank_commands)
        outcome = programs.run_program(
            # all ranks in one set of namespaces: processes that use NCCL share memory, and know each other by their ids
            [*namespace_command(), *sandbox.command(launch_command)],
            environment=sandbox.environment(allowed_variables(os.environ, job.specification["environment"])),
            folder=sandbox.path,
            log=job.log,
            time_limit_s=job.time_limit_s,
            leases=job.leases,
        )
    ranks.gather_logs(logs, job.log)
    return outcome


def _window(job: Job, number: int) -> str | None:
    """The `window` of `profile_command`. On a CPU, nsys records the entire program (None). On a GPU, it records from
    the range RECORDING on, which opens before the program has its lease: no leased GPU waits while nsys starts to
    record. It records only the measured steps (CUDA_CALLS) if more would be a burden: what further options record, such
    as metrics of a GPU that others still use, and kernels that a compiler tries. So does the second attempt: some
    versions of nsys miss ranges of newer nvtx."""
    if job.program["device"] == "cpu" or not gpu_is_visible():
        return None
    is_compiled = job.program["dimensions"]["compile"] != NOT_COMPILED
    is_burden = job.specification["nsys_options"] or is_compiled
    return CUDA_CALLS if is_burden or number > 1 else f"{RECORDING}@{DOMAIN}"


def _first_report_problem(job: Job, folder: Path, results: list[dict], outcome: programs.ProcessExit) -> Problem | None:
    """Why the report of a rank is an incomplete capture, for the first such rank; None if all are complete."""
    for rank, program in enumerate(results):
        if problem := _report_problem(job, folder, program, outcome, rank):
            return problem if len(results) == 1 else replace(problem, text=f"rank {rank}: {problem.text}")
    return None


def _missing_result_problem(job: Job, outcome: programs.ProcessExit) -> Problem:
    """Why nsys caused the program to write no result; raises ProgramFailed if it crashed, or if its code was edited."""
    if outcome.timed_out:
        text = f"killed at the time limit of {job.time_limit_s:g} s, before the program had written its result"
        return Problem("time_limit", text)
    output = outcome.output(job.log)
    if programs.python_crashed(output) or programs.code_changed(output):
        title = f"capture of {job.program['run']} (nsys)"
        raise programs.ProgramFailed(programs.failure_message(title, outcome, job.log, job.time_limit_s))
    last_line = next((line.strip() for line in reversed(output.split("\n")) if line.strip()), "")
    text = f"nsys {outcome.description} before the program had written its result"
    return Problem("nsys_ended_early", text, programs.cut_line(last_line))


def _report_problem(job: Job, folder: Path, program: dict, outcome: programs.ProcessExit, rank: int) -> Problem | None:
    """Exports the report of a rank, whose result is `program`, to the rank's SQLite in `folder`. Returns why that is an
    incomplete capture; None if it is complete."""
    report = ranks.rank_path(folder / REPORT, rank)
    sqlite = ranks.rank_path(folder / SQLITE, rank)
    export = folder / "export.sqlite"
    if not report.exists() or report.stat().st_size == 0:
        hung = f"hung and was killed at the time limit of {job.time_limit_s:g} s"
        ending = hung if outcome.timed_out else outcome.description
        return Problem("nsys_no_report", f"nsys {ending} and wrote no report, though the program ended well")
    try:
        samples_python = any(option.startswith("--python-sampling") for option in job.specification["nsys_options"])
        nsys.export_report(report, export, payloads=samples_python)  # which hold the names of functions
    except TraceError as error:
        return _logged_problem(job, "nsys_export_failed", NOT_EXPORTED, error)
    try:
        write_publishable(export, sqlite, window=MEASURE)
        return combined_problem(_errors_of_capture(sqlite, program))
    except ImpossibleCapture as error:
        return combined_problem([Problem(finding.code, finding.message) for finding in error.findings])
    except TraceError as error:
        return _logged_problem(job, "export_unreadable", UNREADABLE, error)
    finally:
        export.unlink(missing_ok=True)


def _errors_of_capture(sqlite: Path, program: dict) -> list[Problem]:
    """The errors of a capture; `program` is the result of the captured program."""
    from kernel_tables.trace import Trace

    with Trace(sqlite) as trace:
        steps, device = program["spec"]["measured_steps"], program["machine"]["device"]
        errors, _ = errors_and_warnings(trace, measured_steps=steps, device=device, backend=NSYS)
    return errors


def _logged_problem(job: Job, code: str, text: str, error: TraceError) -> Problem:
    """A problem that quotes the error. The error is also appended to the log."""
    job.append_to_log(str(error))
    return Problem(code, text, str(error))
