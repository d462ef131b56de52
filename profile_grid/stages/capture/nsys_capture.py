"""One try at a capture under Nsight Systems, and why it is not whole.

nsys may be missing or unable to run, end badly, hang, end well without a report, or write one that lacks kernels or
ranges. All of that is a problem, told in words of our own, so that runs with one cause have one reason; what nsys said
is in the log. Only a crash of the program itself raises.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from cs336_model.program.variants.values import NOT_COMPILED
from cs336_model.ranges import DOMAIN, MEASURE, RECORDING
from kernel_recorder.gpu import gpu_is_visible
from kernel_recorder.nsys_profile import CUDA_CALLS, profile_command
from kernel_tables.errors import ImpossibleCapture, TraceError
from kernel_tables.reading import nsys
from kernel_tables.reading.publishable import write_publishable
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.long_output import cut_line
from profile_grid.host.processes.measured_program import Attempt, program_command
from profile_grid.host.processes.problems import Problem, append_to_log, joined
from profile_grid.host.processes.programs import (
    ProcessExit,
    ProgramFailed,
    allowed_environment,
    code_changed,
    failure_message,
    python_crashed,
    run_program,
)
from profile_grid.host.processes.ranks import (
    LOGS,
    devices_of,
    gather_logs,
    launch_command,
    merge_rank_results,
    rank_count,
    rank_filename,
    written_by_ranks,
)
from profile_grid.stages.capture.capture_problems import errors_and_warnings
from profile_grid.stages.capture.nsys_sandbox import namespace_command, neutral_folder

RESULT, REPORT, SQLITE = "program.json", "capture.nsys-rep", "capture.sqlite"
NSYS_MISSING = Problem(
    "nsys_missing",
    "capture.backend is nsys and there is no nsys on PATH; install Nsight Systems"
    " (https://developer.nvidia.com/nsight-systems, or the CUDA toolkit's nsight-systems package),"
    " or set capture.backend to torch",
)
CANNOT_RUN = "nsys is on PATH and cannot tell its version: it does not run here; try `nsys --version`"
NOT_EXPORTED = "nsys cannot export its own report: it is damaged, or the disk is full"
UNREADABLE = "nsys exported its report, and the export cannot be read: it is cut short, or the disk is full"


def nsys_attempt(job: Job, trial: Path, number: int) -> Attempt:
    """What came of the try of this number; on success `trial` holds capture.nsys-rep and capture.sqlite, of every
    rank."""
    if nsys.find() is None:
        return Attempt(None, problem=NSYS_MISSING)
    try:
        version = nsys.version()
    except TraceError as error:
        return Attempt(None, problem=_logged(job.log, "nsys_cannot_run", CANNOT_RUN, error))
    outcome = _profiled(job, trial, number)
    hidden, seconds = bool(namespace_command()), {"program": outcome.seconds}
    ranks = written_by_ranks(job, trial / RESULT)
    if not ranks:
        problem = _problem_without_result(job, outcome)
        return Attempt(None, seconds, problem, version, hidden)
    written, _ = merge_rank_results(ranks)
    if written["status"] != "complete":
        return Attempt(written, seconds, None, version, hidden)
    started = time.monotonic()
    problem = _problem_of_ranks(job, trial, ranks, outcome)
    seconds |= {"export": round(time.monotonic() - started, 3)}
    return Attempt(written, seconds, problem, version, hidden, devices_of(ranks))


def _profiled(job: Job, trial: Path, number: int) -> ProcessExit:
    """How nsys ended, one around each rank; the reports become trial/capture.nsys-rep, capture_rank1.nsys-rep, ...,
    what the programs wrote trial/program.json, ...."""
    logs = trial / LOGS
    logs.mkdir()
    with neutral_folder() as folder:
        files, lease = Path(folder.alias(trial)), job.leases.address
        lease = lease and Path(folder.alias(lease))

        def command(rank: int) -> list[str]:
            program = program_command(job, files / rank_filename(RESULT, rank), "nsys", lease=lease)
            return profile_command(
                folder.command(program),
                files / Path(rank_filename(REPORT, rank)).stem,
                options=job.specification["nsys_options"],
                host=job.specification.get("sources", ()),
                window=_window(job, number),
            )

        # in one set of namespaces: NCCL's processes share memory, and know each other by their numbers
        together = launch_command(files / LOGS, [command(rank) for rank in range(rank_count(job.program))])
        outcome = run_program(
            [*namespace_command(), *folder.command(together)],
            environment=folder.environment(allowed_environment(job.specification["environment"])),
            folder=folder.path,
            log=job.log,
            time_limit_s=job.time_limit_s,
            leases=job.leases,
        )
    gather_logs(logs, job.log)
    return outcome


def _window(job: Job, number: int) -> str | None:
    """What nsys records: the whole of a program on a processor, else from before the program has a lease, so that the
    GPU does not wait until nsys has begun; from the window itself where all before it would be a burden: traces of the
    host, metrics of a GPU that others still use, what a compiler tries. So does the second try, since some versions of
    nsys miss the ranges of newer nvtx packages."""
    if job.program["device"] == "cpu" or not gpu_is_visible():
        return None
    asked, compiled = job.specification, job.program["dimensions"]["compile"] != NOT_COMPILED
    burden = asked.get("sources") or asked["nsys_options"] or compiled
    return CUDA_CALLS if burden or number > 1 else f"{RECORDING}@{DOMAIN}"


def _problem_of_ranks(job: Job, trial: Path, ranks: list[dict], outcome: ProcessExit) -> Problem | None:
    """Why a report is not a whole capture, of the first rank of which that is so; None where all are."""
    for rank, written in enumerate(ranks):
        if problem := _problem_of_report(job, trial, written, outcome, rank):
            return problem if len(ranks) == 1 else replace(problem, text=f"rank {rank}: {problem.text}")
    return None


def _problem_without_result(job: Job, outcome: ProcessExit) -> Problem:
    """Why there is no result, where that is nsys's doing; raises ProgramFailed where the program crashed."""
    if outcome.timed_out:
        ended = f"ended at the time limit of {job.time_limit_s:g} s, before the program had written its result"
        return Problem("time_limit", ended)
    output = outcome.output(job.log)
    if python_crashed(output) or code_changed(output):
        what = f"capture of {job.program['run']} (nsys)"
        raise ProgramFailed(failure_message(what, outcome, job.log, job.time_limit_s))
    last_line = next((line.strip() for line in reversed(output.split("\n")) if line.strip()), "")
    ended = f"nsys {outcome.how} before the program had written its result"
    return Problem("nsys_ended_early", ended, cut_line(last_line))


def _problem_of_report(job: Job, trial: Path, written: dict, outcome: ProcessExit, rank: int) -> Problem | None:
    """Why the report of a rank is not a whole capture, or None; on the way it becomes trial/capture.sqlite."""
    report, sqlite = (trial / rank_filename(name, rank) for name in (REPORT, SQLITE))
    export = trial / "export.sqlite"
    if not report.exists() or report.stat().st_size == 0:
        ended = f"hung and was ended at the time limit of {job.time_limit_s:g} s" if outcome.timed_out else outcome.how
        return Problem("nsys_no_report", f"nsys {ended} and wrote no report, though the program ended well")
    try:
        nsys.export_report(report, export, payloads="python" in job.specification.get("sources", ()))
    except TraceError as error:
        return _logged(job.log, "nsys_export_failed", NOT_EXPORTED, error)
    try:
        write_publishable(export, sqlite, window=MEASURE)
        return joined(_errors(sqlite, written))
    except ImpossibleCapture as error:
        return joined([Problem(finding.code, finding.message) for finding in error.findings])
    except TraceError as error:
        return _logged(job.log, "export_unreadable", UNREADABLE, error)
    finally:
        export.unlink(missing_ok=True)


def _errors(sqlite: Path, written: dict) -> list[Problem]:
    from kernel_tables.trace import Trace

    with Trace(sqlite) as trace:
        steps, device = written["spec"]["measured_steps"], written["machine"]["device"]
        return errors_and_warnings(trace, measured_steps=steps, device=device, backend="nsys")[0]


def _logged(log: Path, code: str, text: str, error: TraceError) -> Problem:
    append_to_log(log, str(error))
    return Problem(code, text, str(error))
