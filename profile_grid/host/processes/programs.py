"""Programs run to their end or to a time limit, in an environment that is listed name by name."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cs336_model.program.loading import CHANGED
from profile_grid.errors import OutsideError
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.supervisor import process_stat

LOG_END_BYTES = 500_000  # kept of each end of a long log
LINE_END_LENGTH = 200  # characters kept of each end of a long line in a message
LOG_LINES_IN_MESSAGE = 15
SUPERVISOR = Path(__file__).with_name("supervisor.py")
WORKFLOW_VARIABLE = "PROFILE_GRID_WORKFLOW"  # the process id of Snakemake, set by the Snakefile
# A profiler exits with the status of its program or with one of its own, so only the output shows that Python crashed.
CRASHED = re.compile(r"^(Traceback \(most recent call last\):|Fatal Python error:)", re.MULTILINE)


class ProgramFailed(OutsideError):
    """A program failed; the message holds the end of its log and the path of the log."""


class WorkflowGone(ProgramFailed):
    """The Snakemake that started this job was killed; the message says how to go on."""


@dataclass(frozen=True)
class ProcessExit:
    """How a program ended."""

    returncode: int  # negative: the signal
    timed_out: bool
    seconds: float
    log_start: int = 0  # where its output begins in the log, which may begin with output of earlier programs

    @property
    def succeeded(self) -> bool:
        return self.returncode == 0 and not self.timed_out

    @property
    def description(self) -> str:
        """`ended with exit status 3`, or `was killed by SIGKILL`."""
        if self.returncode < 0:
            return f"was killed by {signal.Signals(-self.returncode).name}"
        # a shell whose program was killed by a signal ends with the signal's number plus 128
        by_signal = self.returncode - 128 in set(signal.Signals)
        signal_name = f" ({signal.Signals(self.returncode - 128).name})" if by_signal else ""
        return f"ended with exit status {self.returncode}{signal_name}"

    def output(self, log: Path) -> str:
        """The output of the program, as far as it is text."""
        return log.read_bytes()[self.log_start :].decode(errors="replace")


@dataclass(frozen=True)
class RunningProgram:
    """A program that its supervisor runs."""

    supervisor: subprocess.Popen
    log: Path
    log_start: int
    time_limit_s: float
    leases: Leases
    started_s: float  # by time.monotonic
    waited_before_s: float  # for leases of its job, until the program started

    def wait(self) -> ProcessExit:
        """Waits until it ends or is killed at the time limit, and returns how it ended. Raises WorkflowGone if this
        job's Snakemake is gone."""
        has_ended = self._ends_in_time()
        self.end()
        return ProcessExit(self.supervisor.returncode, not has_ended, self._running_s(), self.log_start)

    def end(self) -> None:
        """Kills it and its descendants, if it has not ended."""
        if not self.supervisor.stdin.closed:
            self.supervisor.stdin.close()
            self.supervisor.wait()
            cut_log(self.log, self.log_start)

    def _ends_in_time(self) -> bool:
        """Whether it ends before its time limit; raises WorkflowGone if this job's Snakemake ends before that."""
        workflow = int(os.environ.get(WORKFLOW_VARIABLE, 0))
        is_below_workflow = workflow in _ancestors()
        while (remaining_s := self.time_limit_s - self._running_s()) > 0:
            try:
                self.supervisor.wait(timeout=min(remaining_s, 1.0))
                return True
            except subprocess.TimeoutExpired:
                if is_below_workflow and workflow not in _ancestors():
                    raise WorkflowGone(
                        f"Snakemake (process {workflow}) is gone, so this measurement was ended;"
                        " unlock the folder and run again: snakemake --unlock && snakemake --cores 1 all"
                    ) from None
        return self.supervisor.poll() is not None

    def _running_s(self) -> float:
        """Seconds since its start, without waiting for leases."""
        return time.monotonic() - self.started_s - (self.leases.waited_s() - self.waited_before_s)


def run_program(command: Sequence[str], **options: Any) -> ProcessExit:
    """How the program ended; `options` are those of `running_program`."""
    with running_program(command, **options) as program:
        return program.wait()


@contextmanager
def running_program(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    time_limit_s: float,
    folder: Path | None = None,
    leases: Leases | None = None,
) -> Iterator[RunningProgram]:
    """Runs a program in the background of a with block, whose end kills the program and its descendants. Its output is
    appended to `log`; programs that run at the same time need a log each. Waiting for a lease does not count for the
    time limit.

    supervisor.py runs it, and also kills everything below it if this process is killed, so nothing stays on a GPU.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    leases = leases or Leases()
    with log.open("ab") as sink:
        log_start = sink.tell()
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), *command],
            env=dict(environment), cwd=folder, stdin=subprocess.PIPE, stdout=sink, stderr=sink, start_new_session=True,
            pass_fds=leases.lock_descriptors,  # it ends last: the lease lasts until nothing is left of the program
        )  # fmt: skip
    program = RunningProgram(supervisor, log, log_start, time_limit_s, leases, time.monotonic(), leases.waited_s())
    try:
        yield program
    finally:
        program.end()


def python_crashed(output: str) -> bool:
    """Whether this output of a program under a profiler shows that Python itself crashed."""
    return bool(CRASHED.search(output))


def code_changed(output: str) -> bool:
    """Whether a measured program ended because its code was edited meanwhile."""
    return CHANGED in output


def failure_message(title: str, outcome: ProcessExit, log: Path, time_limit_s: float) -> str:
    """How the program with this title ended, the last lines of its log, and the path of the log."""
    ending = f"was killed at the time limit of {time_limit_s:g} s" if outcome.timed_out else outcome.description
    lines = outcome.output(log).splitlines()[-LOG_LINES_IN_MESSAGE:]
    tail = "\n".join(f"  | {cut_line(line)}" for line in lines) or "  | (it printed nothing)"
    return f"{title} {ending}; the end of its log:\n{tail}\ncomplete log: {log}"


def cut_log(log: Path, start: int) -> None:
    """If the log from `start` on is longer than the two ends that are kept, cuts out its middle. The beginning says
    what ran, the end what failed."""
    with log.open("r+b") as stream:
        cut_bytes = stream.seek(0, os.SEEK_END) - start - 2 * LOG_END_BYTES
        if cut_bytes <= 0:
            return
        stream.seek(-LOG_END_BYTES, os.SEEK_END)
        end = stream.read()
        stream.truncate(start + LOG_END_BYTES)
        stream.seek(0, os.SEEK_END)
        stream.write(f"\n... {cut_bytes} bytes that were printed here are left out ...\n".encode() + end)


def cut_line(line: str) -> str:
    """The line, or both ends of a long one."""
    beginning, middle, end = line[:LINE_END_LENGTH], line[LINE_END_LENGTH:-LINE_END_LENGTH], line[-LINE_END_LENGTH:]
    return f"{beginning} ... {len(middle)} characters left out ... {end}" if middle else line


def _ancestors() -> list[int]:
    """The ids of the processes above this one: its parent first, then the parent of that, up to process 1."""
    ancestors, pid = [], os.getpid()
    while pid > 1:
        stat = process_stat(pid)
        if stat is None:  # it ended meanwhile, so the process below it has another parent
            return _ancestors()
        pid = stat.parent
        ancestors.append(pid)
    return ancestors
