"""Programs run to their end or to a time limit, in an environment that is listed name by name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.measuring.lease_server import Leases
from profile_grid.measuring.long_output import cut_line, cut_log

# What a CUDA program needs to start; everything else stays outside, because nsys copies the whole environment of the
# profiled process into its report.
NEEDED_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NCCL_NVLS_ENABLE",  # 0 where NVLink multicast has to stay off
)
LOG_LINES_IN_MESSAGE = 15
SUPERVISOR = Path(__file__).with_name("supervisor.py")
WORKFLOW_VARIABLE = "PROFILE_GRID_WORKFLOW"  # the process id of Snakemake, set by the Snakefile


# A profiler passes on the exit status of its program, or its own; that Python ended badly stands in the output only.
CRASHED = re.compile(r"^(Traceback \(most recent call last\):|Fatal Python error:)", re.MULTILINE)


class ProgramFailed(OutsideError):
    """A program that was run ended badly; the message holds the end of its log and the path of the whole."""


class WorkflowGone(ProgramFailed):
    """The Snakemake that started this job was killed; the message says how to go on."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended: its exit status (negative: the signal), whether the time limit ended it, and seconds."""

    returncode: int
    timed_out: bool
    seconds: float
    log_start: int = 0  # where its output begins in the log, which may hold earlier programs' too

    @property
    def succeeded(self) -> bool:
        return self.returncode == 0 and not self.timed_out

    @property
    def how(self) -> str:
        """`ended with exit status 3`, or by which signal; a shell adds 128 to the signal of what it ran."""
        if self.returncode < 0:
            return f"was ended by {signal.Signals(-self.returncode).name}"
        by_signal = self.returncode - 128 in set(signal.Signals)
        told = f" ({signal.Signals(self.returncode - 128).name})" if by_signal else ""
        return f"ended with exit status {self.returncode}{told}"

    def output(self, log: Path) -> str:
        """What the program printed, as far as it is text."""
        return log.read_bytes()[self.log_start :].decode(errors="replace")


def python_crashed(output: str) -> bool:
    """Whether this output of a program under a profiler tells that Python itself ended badly."""
    return bool(CRASHED.search(output))


def allowed_environment(extra_names: Iterable[str] = (), source: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a measured program may see: those it needs, and the names that config.yaml adds."""
    source = os.environ if source is None else source
    names = [*NEEDED_VARIABLES, *extra_names]
    return {name: source[name] for name in names if name in source}


def run_program(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    time_limit_s: float,
    folder: Path | None = None,
    leases: Leases | None = None,
) -> Outcome:
    """How the program ended. Its output is appended to `log`; at the time limit it is ended with all its children.
    What it waits for its lease does not count.

    A supervisor runs it (supervisor.py), which ends everything below it also when this process is killed: nothing is
    left behind on a GPU. Raises WorkflowGone when the Snakemake that started this job is no more.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    leases = leases or Leases()
    started, waited_before_s = time.monotonic(), leases.waited_s()
    with log.open("ab") as sink:
        log_start = sink.tell()
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), *command],
            env=dict(environment), cwd=folder, stdin=subprocess.PIPE, stdout=sink, stderr=sink, start_new_session=True,
            pass_fds=leases.files,  # it ends last: the host is leased until nothing is left of the program
        )  # fmt: skip
    try:
        timed_out = not _ends_within(supervisor, lambda: time_limit_s + leases.waited_s() - waited_before_s)
    finally:
        supervisor.stdin.close()
        supervisor.wait()
        cut_log(log, log_start)
    seconds = time.monotonic() - started - (leases.waited_s() - waited_before_s)
    return Outcome(supervisor.returncode, timed_out, seconds, log_start)


def _ends_within(process: subprocess.Popen, limit_s: Callable[[], float]) -> bool:
    """Whether the process ended before the limit; looks every second whether this job's Snakemake still lives."""
    workflow = int(os.environ.get(WORKFLOW_VARIABLE, 0))
    watched = workflow in _ancestors()
    started = time.monotonic()
    while (left_s := started + limit_s() - time.monotonic()) > 0:
        try:
            process.wait(timeout=min(left_s, 1.0))
            return True
        except subprocess.TimeoutExpired:
            if watched and workflow not in _ancestors():
                raise WorkflowGone(
                    f"Snakemake (process {workflow}) is gone, so this measurement was ended;"
                    " unlock the folder and run again: snakemake --unlock && snakemake --cores 1 all"
                ) from None
    return False


def _ancestors() -> list[int]:
    """The processes above this one, up to the first."""
    found, pid = [], os.getpid()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:  # it ended meanwhile, so what was below it has another parent
            return _ancestors()
        found.append(pid)
    return found


def failure_message(what: str, outcome: Outcome, log: Path, time_limit_s: float) -> str:
    """What happened, the last lines of the log, and where the whole log is."""
    how = f"was ended at the time limit of {time_limit_s:g} s" if outcome.timed_out else outcome.how
    lines = outcome.output(log).splitlines()[-LOG_LINES_IN_MESSAGE:]
    tail = "\n".join(f"  | {cut_line(line)}" for line in lines) or "  | (it printed nothing)"
    return f"{what} {how}; the end of its log:\n{tail}\nwhole log: {log}"
