"""Measures one stage of one run.

    python -m workflow.scripts.measure --key JSON --outputs RESULT [CAPTURE] [--sources FILE ...]
        --time-limit SECONDS --log FILE

The wanted key of a result -> the result, and beside it what was captured. Each file appears complete or not at all, the
result last. Without a result, it ends with a line on standard error, after a crash with the end of the log.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path

import msgspec

from cs336_model import locks
from cs336_model.results import STAGES, Counters, Result, write_result
from cs336_model.spec import Spec, read_spec
from kernel_tables.record.nsys import profile_command
from workflow import freshness, runner
from workflow.grid import ConfigError
from workflow.runner import Job, ProfilerFailed, ProgramFailed


def main() -> None:
    """Measures what the key says, and writes the result, or the reason why there is none, and what is captured."""
    parser = argparse.ArgumentParser(prog="python -m workflow.scripts.measure")
    parser.add_argument("--key", type=json.loads, required=True, help="wanted: specification, digest of the code, ...")
    parser.add_argument("--outputs", nargs="+", type=Path, required=True, help="the result, and what is captured")
    parser.add_argument("--sources", nargs="*", default=[], help="measured files of the working folder")
    parser.add_argument("--time-limit", type=float, required=True, help="in seconds, from when it has its device")
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    target, *captures = options.outputs
    runner.guard_process()
    started, key = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), freshness.complete_key(options.key)
    try:
        spec = read_spec(msgspec.json.encode(key["spec"]))
        require_planned_code(spec.stage, options.sources, key["code"])
        options.log.parent.mkdir(parents=True, exist_ok=True)
        options.log.write_bytes(b"")
        with runner.scratch_folder(target) as scratch:
            job = Job(scratch, options.log, options.time_limit, spec.environment)
            result = measure(job, spec, key, captures[0].name if captures else None)
            require_planned_code(spec.stage, options.sources, key["code"])
            result.key, result.started_utc = key, started
            if result.machine:
                result.machine.driver = key["driver"]
            write_result(result, scratch / target.name)
            put_files(job.files, captures, target)
            (scratch / target.name).replace(target)
    except (ProgramFailed, ProfilerFailed, ConfigError, ValueError) as error:
        sys.exit(f"{target}: {error}")
    except OSError as error:  # as of a full disk
        sys.exit(f"{target}: {error}; run snakemake again when this is mended")


def require_planned_code(stage: str, sources: list[str], code: str) -> None:
    """Raises ProgramFailed if the measured code is not that of the wanted key."""
    if freshness.digest_measured(stage, sources) != code:
        raise ProgramFailed("the measured code was edited after this job was planned; run snakemake again")


def measure(job: Job, spec: Spec, key: dict, capture: str | None) -> Result:
    """The result of a stage, without its key; files are in `job.files`. Raises ProgramFailed and ProfilerFailed."""
    if spec.stage == "counters":
        return count_kernels(job, spec, key)
    if spec.stage != "capture":
        return run_program(job, spec, "none", capture)
    if spec.backend != "nsys" and not key["nsys"]:
        result = run_program(job, spec, "torch", capture)
        result.profiler = "torch"
        return result
    if key["nsys"] is None:
        raise ProfilerFailed(
            "capture.backend is nsys and there is no nsys on PATH; install Nsight Systems"
            " (https://developer.nvidia.com/nsight-systems), or set capture.backend to torch"
        )
    return capture_by_nsys(job, spec, key)


def run_program(
    job: Job, spec: Spec, profiler: str, capture: str | None = None, around: list[str] | None = None
) -> Result:
    """The result of the program, with the words `around` of a profiler before its own command line, or before that of
    each rank. At its time limit, that is a result, too."""
    command = [*runner.PROGRAM, "--spec", msgspec.json.encode(spec).decode(), "--output", str(job.written)]
    command += ["--locks", str(locks.LOCKS), "--profiler", profiler]
    command += ["--capture", str(job.files / capture)] if capture else []
    if around and spec.gpus > 1:
        command += ["--rank-command", json.dumps(around)]
    elif around:
        command = [*(word.replace("{rank}", "") for word in around), *command]
    status, is_stopped = runner.run_limited(job, command, profiler)
    if job.written.exists() and (status == 0 or around or is_stopped):  # a profiler has a status of its own
        return msgspec.json.decode(job.written.read_bytes(), type=STAGES[spec.stage])
    if is_stopped:
        reason = f"stopped at the time limit of {job.time_limit_s:g} s; set a longer time_limit_s and use --forcerun"
        return STAGES[spec.stage](status="stopped", reason=reason)
    said = job.log.read_text(errors="replace")
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    if around and "Traceback (most recent call last):" not in said and "Fatal Python error:" not in said:
        raise ProfilerFailed(f"{around[0]} {how} before the program had written its result; see {job.log}")
    lines = [f"  | {line[:400]}" for line in said.splitlines()[-15:]]
    raise ProgramFailed("\n".join([f"the measured program {how}; the end of its log {job.log}:", *lines]))


def capture_by_nsys(job: Job, spec: Spec, key: dict) -> Result:
    """The result under nsys, with captures and reports in `job.files` if it is complete. Raises ProfilerFailed."""
    window = runner.choose_window(spec, bool(key["gpu"]))
    report = job.scratch / "capture{rank}"  # "capture_rank1" of the second rank
    result = run_program(job, spec, "nsys", around=profile_command(report, spec.nsys_options, window))
    if result.status == "complete":
        for rank in range(spec.gpus):
            report = job.scratch / f"capture{f'_rank{rank}' if rank else ''}.nsys-rep"
            runner.export_capture(report, job.files / f"{report.stem}.sqlite", spec.nsys_options)
            if spec.keep_report:
                report.replace(job.files / report.name)
                job.write_to_log(f"warning: {report.name} holds the environment of other processes: do not publish it")
        runner.write_reports(job, job.files / "capture.sqlite")
    result.profiler, result.nsys = "nsys", key["nsys"]
    return result


def count_kernels(job: Job, spec: Spec, key: dict) -> Result:
    """The result under ncu, whose table is in `job.files`; unsupported, with the next step, if nothing can be counted.
    So is a crash: a model need not run under ncu or with fewer layers, and by default nobody asked for counters."""
    if not key["gpu"] or not key["ncu"]:
        return Counters(status="unsupported", reason=runner.NCU_MISSING if key["gpu"] else runner.NO_GPU)
    table, reason = job.scratch / "table.csv", None
    try:
        result = run_program(job, spec, "ncu", around=runner.ncu_command(table, spec.metrics))
        if result.status == "complete":
            runner.write_counters(table, job.files / "ncu.csv")
    except ProfilerFailed as error:
        reason = str(error)
    except ProgramFailed as error:
        job.write_to_log(str(error))
        reason = "no counters: the program crashed under ncu, where its model has fewer layers; see its log"
    if reason:
        said = "".join(path.read_text(errors="replace") for path in (job.log, table) if path.exists())
        known = (text for words, text in runner.NCU_REFUSALS.items() if words in said)  # which may be published
        result = Counters(status="unsupported", reason=next(known, reason))
    result.ncu = key["ncu"]
    return result


def put_files(files: Path, captures: list[Path], target: Path) -> None:
    """Moves the kept files beside the result, instead of those of an earlier one; what each result of the stage has is
    empty where nothing was recorded, as if memory ran out."""
    for path in captures:
        (files / path.name).touch()
    for path in target.parent.glob(f"{target.stem}*"):
        if path.suffix in (".sqlite", ".nsys-rep", ".pickle"):
            path.unlink()
    if target.stem == "capture":
        shutil.rmtree(target.with_name("reports"), ignore_errors=True)
    for path in files.iterdir():
        path.replace(target.with_name(path.name))


if __name__ == "__main__":
    main()
