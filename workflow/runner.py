"""Runs a measured program, alone or under nsys or ncu, and leaves none of its processes.

The command line of a program -> its output in a log, how it ended, and what a profiler wrote, as files without anything
private. Imports no torch and no pandas.
"""

import csv
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cs336_model import locks
from cs336_model.ranges import DOMAIN, RECORDING
from cs336_model.spec import Spec

REPORTS = {  # of nsys since 2023, by the name of our file
    "kernel_summary": "cuda_gpu_kern_sum", "nvtx_summary": "nvtx_sum", "api_summary": "cuda_api_sum",
}  # fmt: skip
NO_GPU = "kernels are counted on an NVIDIA GPU, and this grid is measured without one"
NCU_MISSING = (
    "no counters: there is no ncu on PATH; install Nsight Compute (https://developer.nvidia.com/nsight-compute, or the"
    " CUDA toolkit's package nsight-compute)"
)
NCU_REFUSALS = {  # why ncu counts nothing, by words in what it prints
    "ERR_NVGPUCTRPERM": "no counters: the NVIDIA driver lets only administrators read them (ERR_NVGPUCTRPERM); have the"
    " host's administrator load it with NVreg_RestrictProfilingToAdminUsers=0, or run with CAP_SYS_ADMIN"
    " (https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
    "driver resource was unavailable": "no counters: another tool reads them, such as DCGM; pause it"
    " (dcgmi profiling --pause)",
    "Profiling is not supported on device": "no counters: ncu does not know this GPU, or a hypervisor hides its"
    " counters; try a newer Nsight Compute, or a host without virtual GPUs",
}
PROGRAM = [sys.executable, "-m", "cs336_model"]
END_S = 300.0  # for a profiler to write its report, once the program has written its result
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
C_LIBRARY = ctypes.CDLL(None)


class ProgramFailed(Exception):
    """A measured program gave no result. The message says how it ended, with the end of its log."""


class ProfilerFailed(Exception):
    """The program ended well, and its profiler wrote nothing that can be used. The message is one line."""


class Job:
    """What the programs of one measurement share: the log, the variables, and a scratch folder, in which `files` holds
    what is to be kept, `started` exists while the program has its device, and `written` is its result."""

    def __init__(self, scratch: Path, log: Path, time_limit_s: float, environment: Mapping[str, str | None]) -> None:
        self.scratch, self.files, self.log = scratch, scratch / "files", log
        self.started, self.written = scratch / "started", scratch / "result.json"
        self.time_limit_s, self.sharing = time_limit_s, None  # the locks that this process shares
        # what a program with CUDA needs to start, and the listed variables, which are unset if None; no others, because
        # nsys copies its environment into the report
        needed = (
            "PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "PYTHONPATH",
            "PYTHONSAFEPATH", "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES",
            "CUDA_DEVICE_ORDER", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        )  # fmt: skip
        chosen = {name: os.environ.get(name) for name in needed} | dict(environment)
        self.environment = {name: value for name, value in chosen.items() if value is not None}

    def write_to_log(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            print(text, file=log)


def guard_process() -> None:
    """Makes this process adopt what its children leave behind, so that it can end it, and end in an orderly way by any
    signal that can be caught; one comes when its parent, Snakemake, is killed."""

    def end(number: int, _: object) -> None:
        for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)  # the end is not interrupted
        sys.exit(f"ended by {signal.Signals(number).name}; nothing of it is left")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    C_LIBRARY.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    C_LIBRARY.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


@contextmanager
def scratch_folder(result: Path) -> Iterator[Path]:
    """A folder beside a result for what is not complete yet, which the end of the block removes. It is on the same
    disk, so that a file gets its place by a rename. What a killed process left there is removed, too."""
    result.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in result.parent.glob(f".{result.stem}-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    folder = result.with_name(f".{result.stem}-{os.getpid()}")
    try:
        (folder / "files").mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_limited(job: Job, command: Sequence[str], profiler: str) -> tuple[int, bool]:
    """Runs the command line of a program, appends its output to the log, and returns (its exit status or −signal,
    whether it was ended at its time limit); then nothing of it runs. The limit counts while the program has its device:
    to wait for it costs none.

    This process shares no locks while the program may want them alone. Under nsys, it joins those that the program
    shares once that has written its result, and keeps them, so that no measurement begins beside an export."""
    if job.sharing:
        job.sharing.release()
    left_s, is_shared, before = job.time_limit_s, False, time.monotonic()
    with job.log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=job.environment, start_new_session=True
        )
    try:
        while process.poll() is None and left_s > 0:
            time.sleep(0.02)
            if not is_shared and profiler == "nsys" and job.written.exists():
                job.sharing, is_shared = locks.shared(locks.LOCKS, turnstile=False), True
                left_s, before = END_S, time.monotonic()
            now = time.monotonic()
            left_s -= now - before if is_shared or job.started.exists() else 0
            before = now
        is_stopped = process.poll() is None
        patience = time.monotonic() + 1
        while profiler == "nsys" and not is_stopped and list_children() and time.monotonic() < patience:
            time.sleep(0.02)  # its agent cleans up
    finally:
        process.kill()
        status = process.wait()
        end_children()
    if profiler == "nsys" and not is_shared:
        job.sharing = locks.shared()
    return status, is_stopped


def end_children() -> None:
    """Kills every process below this one, in whatever group or session: nsys gives its agent and its program sessions
    of their own. Those whose parent is killed become children of this process."""
    while children := list_children():
        for child in children:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def list_children() -> list[int]:
    """The ids of the children of this process that have not ended."""
    children = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the name of the command, in parentheses, may itself contain spaces and parentheses
            state, parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
            children += [int(entry.name)] if int(parent) == os.getpid() and state not in "ZX" else []
    return children


def choose_window(spec: Spec, has_gpu: bool) -> str | None:
    """What nsys records: None, the whole program, on a CPU, where nsys knows no call that starts it.

    On a GPU it is the range `recording`, which opens before the program has its device: no GPU waits while nsys starts.
    What further options record, such as metrics of a GPU that others still use, and the kernels that a compiler tries,
    would be a burden before the measured steps: then it is from cudaProfilerStart to cudaProfilerStop."""
    if not has_gpu:
        return None
    return "cudaProfilerApi" if spec.nsys_options or spec.compile != "off" else f"{RECORDING}@{DOMAIN}"


def export_capture(report: Path, capture: Path, options: Sequence[str]) -> None:
    """Writes what may be published of a report of nsys, as SQLite. Raises ProfilerFailed without a usable report."""
    from kernel_tables.errors import TraceError
    from kernel_tables.publish import write_publishable
    from kernel_tables.record import nsys

    if not report.exists() or not report.stat().st_size:
        raise ProfilerFailed(f"nsys wrote no report {report.name}, though the program ended well")
    export = report.with_suffix(".export")
    try:
        has_payloads = any(option.startswith("--python-sampling") for option in options)  # names of functions
        nsys.export_report(report, export, payloads=has_payloads)
        write_publishable(export, capture, window="measure")
    except TraceError as error:
        capture.unlink(missing_ok=True)
        raise ProfilerFailed(str(error)) from None
    finally:
        export.unlink(missing_ok=True)


def write_reports(job: Job, capture: Path) -> None:
    """Writes what `nsys stats` says about a capture, as CSV files, where nsys has anything to say."""
    folder, prefix = job.files / "reports", job.scratch / "stats"
    folder.mkdir()
    command = ["nsys", "stats", f"--report={','.join(REPORTS.values())}", "--format=csv", "--force-overwrite=true"]
    command += [f"--output={prefix}", str(capture)]
    with job.log.open("ab") as output, suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, timeout=END_S)
    for name, report in REPORTS.items():
        with suppress(FileNotFoundError):
            Path(f"{prefix}_{report}.csv").replace(folder / f"{name}.csv")


def ncu_command(table: Path, metrics: Sequence[str]) -> list[str]:
    """`ncu`, to be put before a program: counts between cudaProfilerStart and cudaProfilerStop, once per kernel and
    launch size, and writes a table. No report is written, since that would hold the environment.

    Two launches of a name and size are counted, since products of matrices may differ in depth. A replayed kernel of
    NCCL would wait forever. Kernels are told apart by full names; clocks stay, since counted times are not used; caches
    are emptied, so that bytes are those of a kernel that finds nothing cached."""
    from kernel_tables.counters import METRICS, OPERATION_INDICATORS

    names = dict.fromkeys([*METRICS, *OPERATION_INDICATORS, *metrics])
    return [
        "ncu", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all",
        "--import-sass", "off", "--kernel-name-base", "demangled", "--rename-kernels", "off",
        "--kernel-name", "regex:^(?!nccl)", "--filter-mode", "per-launch-config", "--launch-count", "2",
        "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(names), "--log-file", str(table),
    ]  # fmt: skip


def write_counters(table: Path, target: Path) -> None:
    """Writes a table of ncu without messages and what names the host. Raises ProfilerFailed if it is cut short."""
    lines = table.read_text(encoding="utf-8", errors="replace").split("\n") if table.exists() else []
    rows = list(csv.reader(line for line in lines if line.startswith('"')))
    if len(rows) < 3 or any(len(row) != len(rows[0]) for row in rows):  # heading, units, launches
        raise ProfilerFailed("no counters: the program ended well, and ncu wrote no table that can be read")
    kept = [column for column, name in enumerate(rows[0]) if name not in ("Process ID", "Process Name", "Host Name")]
    with target.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([row[column] for column in kept] for row in rows)
