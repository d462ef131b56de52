"""Programs run to their end or to a time limit, in an environment that is listed name by name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cs336_model.program.loading import CHANGED
from profile_grid.errors import OutsideError
from profile_grid.freshness.environment import allowed_variables
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.long_output import cut_line, cut_log

LOG_LINES_IN_MESSAGE = 15
SUPERVISOR = Path(__file__).with_name("supervisor.py")
WORKFLOW_VARIABLE = "PROFILE_GRID_WORKFLOW"  # the process id of Snakemake, set by the Snakefile


# A profiler passes on the exit status of its program, or its own; that Python ended badly stands in the output only.
CRASHED = re.compile(r"^(Traceback \(most recent call last\):|Fatal Python error:)", re.MULTILINE)


class ProgramFailed(OutsideError):
    """A program failed; the message holds the end of its log and the path of the log."""


class WorkflowGone(ProgramFailed):
    """The Snakemake that started this job was killed; the message says how to go on."""


@dataclass(frozen=True)
class ProcessExit:
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
        signal_name = f" ({signal.Signals(self.returncode - 128).name})" if by_signal else ""
        return f"ended with exit status {self.returncode}{signal_name}"

    def output(self, log: Path) -> str:
        """What the program printed, as far as it is text."""
        return log.read_bytes()[self.log_start :].decode(errors="replace")


def python_crashed(output: str) -> bool:
    """Whether this output of a program under a profiler tells that Python itself ended badly."""
    return bool(CRASHED.search(output))


def allowed_environment(extra_names: Iterable[str] = (), source: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a measured program may see: those it needs, and the names that config.yaml adds."""
    return allowed_variables(os.environ if source is None else source, extra_names)


def code_changed(output: str) -> bool:
    """Whether a measured program ended since its code was edited meanwhile."""
    return CHANGED in output


def run_program(command: Sequence[str], **options: Any) -> ProcessExit:
    """How the program ended; `options` are those of `started_program`."""
    with started_program(command, **options) as program:
        return program.outcome()


@contextmanager
def started_program(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    time_limit_s: float,
    folder: Path | None = None,
    leases: Leases | None = None,
) -> Iterator[Started]:
    """Run a program in the background of a with block; on exit kill it and its descendants. Its output is appended to
    `log`; programs that run at the same time need one each. Waiting for a lease does not count for the time limit.

    supervisor.py runs it, and also kills everything below it if this process is killed, so nothing stays on a GPU.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    leases = leases or Leases()
    with log.open("ab") as sink:
        log_start = sink.tell()
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), *command],
            env=dict(environment), cwd=folder, stdin=subprocess.PIPE, stdout=sink, stderr=sink, start_new_session=True,
            pass_fds=leases.files,  # it ends last: the host is leased until nothing is left of the program
        )  # fmt: skip
    program = Started(supervisor, log, log_start, time_limit_s, leases, time.monotonic(), leases.waited_s())
    try:
        yield program
    finally:
        program.end()


@dataclass(frozen=True)
class Started:
    """A program that runs below its supervisor, since when, and what its job had waited for leases by then."""

    supervisor: subprocess.Popen
    log: Path
    log_start: int
    time_limit_s: float
    leases: Leases
    since_s: float
    waited_before_s: float

    def outcome(self) -> ProcessExit:
        """How it ended; waits for that, and ends it at the time limit. Raises WorkflowGone when the Snakemake that
        started this job is no more."""
        in_time = _ends_within(self.supervisor, self.since_s, lambda: self.time_limit_s + self._waited_s())
        self.end()
        seconds = time.monotonic() - self.since_s - self._waited_s()
        return ProcessExit(self.supervisor.returncode, not in_time, seconds, self.log_start)

    def end(self) -> None:
        """Ends what is left of it; nothing where it has ended."""
        if not self.supervisor.stdin.closed:
            self.supervisor.stdin.close()
            self.supervisor.wait()
            cut_log(self.log, self.log_start)

    def _waited_s(self) -> float:
        return self.leases.waited_s() - self.waited_before_s


def _ends_within(process: subprocess.Popen, since_s: float, limit_s: Callable[[], float]) -> bool:
    """Whether the process ended before the limit, or has ended where it is asked for later; looks every second whether
    this job's Snakemake still lives."""
    workflow = int(os.environ.get(WORKFLOW_VARIABLE, 0))
    watched = workflow in _ancestors()
    while (left_s := since_s + limit_s() - time.monotonic()) > 0:
        try:
            process.wait(timeout=min(left_s, 1.0))
            return True
        except subprocess.TimeoutExpired:
            if watched and workflow not in _ancestors():
                raise WorkflowGone(
                    f"Snakemake (process {workflow}) is gone, so this measurement was ended;"
                    " unlock the folder and run again: snakemake --unlock && snakemake --cores 1 all"
                ) from None
    return process.poll() is not None


def _ancestors() -> list[int]:
    """The processes above this one, up to the first."""
    ancestors, pid = [], os.getpid()
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:  # it ended meanwhile, so what was below it has another parent
            return _ancestors()
        ancestors.append(pid)
    return ancestors


def failure_message(what: str, outcome: ProcessExit, log: Path, time_limit_s: float) -> str:
    """What happened, the last lines of the log, and where the whole log is."""
    how = f"was ended at the time limit of {time_limit_s:g} s" if outcome.timed_out else outcome.how
    lines = outcome.output(log).splitlines()[-LOG_LINES_IN_MESSAGE:]
    tail = "\n".join(f"  | {cut_line(line)}" for line in lines) or "  | (it printed nothing)"
    return f"{what} {how}; the end of its log:\n{tail}\nwhole log: {log}"
