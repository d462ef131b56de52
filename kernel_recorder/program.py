"""Runs the recorded program, with its own streams, signals and folder, and one more entry in its PYTHONPATH."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_recorder.in_process.handover import ENDING
from kernel_recorder.nsys_profile import profile_command
from kernel_tables.errors import TraceError

INJECTED = Path(__file__).with_name("injected")
OWN_STREAMS = Path(__file__).with_name("own_streams.py")
HANDOVER = "KERNEL_TABLES_RECORDING"
REPORT, NSYS_LOG = "capture.nsys-rep", "nsys.log"
# Without it a replayed CUDA graph is one row without a name, which includes the time between its kernels.
NSYS_OPTIONS = ("--cuda-graph-trace=node",)
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
PATIENCE_S = 10.0  # for the program to end by itself
POLL_S = 0.2


@dataclass(frozen=True)
class Ended:
    """How the program ended: its exit status (negative: the signal), and whether this command ended it, at the time
    limit or after its window was recorded."""

    returncode: int
    timed_out: bool = False
    recorded: bool = False

    @property
    def exit_status(self) -> int:
        """The exit status as in a shell; 0 if the program was to end after its window."""
        if self.recorded:
            return 0
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    @property
    def how(self) -> str:
        """`ended with exit status 3`, or by which signal."""
        number = self.exit_status - 128
        if number in set(signal.Signals):
            return f"was ended by {signal.Signals(number).name}"
        return f"ended with exit status {self.returncode}"


def require_program(program: Sequence[str]) -> None:
    """Raises TraceError if the program cannot be run."""
    if not program:
        raise TraceError("there is no program to record; name it after --, as in `record -- python train.py`")
    if shutil.which(program[0]) is None:
        if program[0].endswith(".py") and Path(program[0]).is_file():
            raise TraceError(f"{program[0]}: is not executable; a script needs its Python: python {program[0]}")
        raise TraceError(f"{program[0]}: there is no such program, or it cannot be run; check the path")


def run_recorded(
    program: Sequence[str],
    handover: Path,
    *,
    under_nsys: bool,
    time_limit_s: float | None,
    end_when: Callable[[], bool],
) -> Ended:
    """Runs the program to its end, to its time limit, or until `end_when` returns true; it is called regularly.

    The notes of its processes and the files of nsys are in `handover` afterwards. Ctrl-C reaches the program from the
    terminal, as always; other signals of this process are passed on.
    """
    environment = _environment(handover)
    with _started(program, environment, handover, under_nsys=under_nsys) as process, _signals_for(process):
        return _waited_for(process, time_limit_s or float("inf"), end_when, handover / ENDING)


def _environment(handover: Path) -> dict[str, str]:
    paths = [str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
    added = {HANDOVER: str(handover), "PYTHONPATH": os.pathsep.join(paths)}
    quiet = {"KINETO_LOG_LEVEL": "99"}  # else PyTorch's profiler reports its start and stop on standard error
    return quiet | dict(os.environ) | added


@contextmanager
def _started(
    program: Sequence[str], environment: dict[str, str], handover: Path, *, under_nsys: bool
) -> Iterator[subprocess.Popen]:
    if not under_nsys:
        with subprocess.Popen(program, env=environment) as process:
            yield process
        return
    streams = [os.dup(number) for number in (0, 1, 2)]
    program_with_streams = [sys.executable, "-I", "-S", str(OWN_STREAMS), *map(str, streams), *program]
    command = profile_command(program_with_streams, handover / REPORT.removesuffix(".nsys-rep"), options=NSYS_OPTIONS)
    with (
        (handover / NSYS_LOG).open("wb") as log,
        subprocess.Popen(
            command, env=environment, pass_fds=streams, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as process,
    ):
        for stream in streams:
            os.close(stream)
        yield process


@contextmanager
def _signals_for(process: subprocess.Popen) -> Iterator[None]:
    """Passes signals on, and ignores Ctrl-C, while the program runs."""
    handlers = {number: lambda received, _: process.send_signal(received) for number in PASSED_ON}
    handlers |= {signal.SIGINT: lambda *_: None, signal.SIGQUIT: lambda *_: None}
    # signals that this process ignores, as under nohup, its program ignores too
    before = {number: signal.getsignal(number) for number in handlers}
    handled = {number for number, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for number in handled:
            signal.signal(number, handlers[number])
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _waited_for(process: subprocess.Popen, time_limit_s: float, end_when: Callable[[], bool], ending: Path) -> Ended:
    deadline = time.monotonic() + time_limit_s
    while True:
        try:
            return Ended(process.wait(min(POLL_S, max(0.0, deadline - time.monotonic()))))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                return Ended(_end(process), timed_out=True)
            if end_when():
                with suppress(OSError):
                    ending.touch()
                return Ended(_end(process), recorded=True)


def _end(process: subprocess.Popen) -> int:
    """Ends a program, with time to write its recording."""
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.wait()
