"""Runs the recorded program, with its own streams, signals and folder; only its environment has further variables."""

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

from kernel_recorder.in_process.handover import ENDING_FILE
from kernel_recorder.nsys_profile import profile_command
from kernel_tables.errors import TraceError

INJECTED_FOLDER = Path(__file__).with_name("injected")
OWN_STREAMS_SCRIPT = Path(__file__).with_name("own_streams.py")
HANDOVER_VARIABLE = "KERNEL_TABLES_RECORDING"
REPORT_FILE, NSYS_LOG_FILE = "capture.nsys-rep", "nsys.log"
# Without it a replayed CUDA graph is one row without a name, which includes the time between its kernels.
NSYS_OPTIONS = ("--cuda-graph-trace=node",)
PASSED_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING_PATIENCE_S = 10.0  # after each signal, for the program to end by itself
POLL_S = 0.2


@dataclass(frozen=True)
class ProgramEnd:
    """How the program ended."""

    returncode: int  # negative: the signal
    timed_out: bool = False  # this command ended it at the time limit
    by_request: bool = False  # this command ended it once its window was recorded, as --end requests

    @property
    def exit_status(self) -> int:
        """The exit status as in a shell; 0 if the program was ended by request."""
        return 0 if self.by_request else self._status_in_shell

    @property
    def _status_in_shell(self) -> int:
        return self.returncode if self.returncode >= 0 else 128 - self.returncode  # 128 + the signal

    @property
    def phrase(self) -> str:
        """How it ended, in words: "ended with exit status 3", or "was ended by SIGTERM"."""
        number = self._status_in_shell - 128
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
    program: Sequence[str], handover_folder: Path, *, under_nsys: bool, time_limit_s: float | None,
    end_when: Callable[[], bool],
) -> ProgramEnd:  # fmt: skip
    """Runs the program, and ends it at its time limit, or once `end_when`, which is called regularly, returns true.

    The notes of its processes and the files of nsys are in `handover_folder` afterwards. Ctrl-C reaches the program
    from the terminal, as always; this process passes PASSED_SIGNALS on.
    """
    with _running_program(program, handover_folder, under_nsys=under_nsys) as process, _signals_passed_to(process):
        return _wait_for_end(process, time_limit_s or float("inf"), end_when, handover_folder / ENDING_FILE)


def _environment(handover_folder: Path) -> dict[str, str]:
    """The environment of the program: that of this process with the recorder in PYTHONPATH."""
    paths = [str(INJECTED_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    recorder = {HANDOVER_VARIABLE: str(handover_folder), "PYTHONPATH": os.pathsep.join(paths)}
    defaults = {"KINETO_LOG_LEVEL": "99"}  # else PyTorch's profiler reports its start and stop on standard error
    return defaults | dict(os.environ) | recorder


@contextmanager
def _running_program(program: Sequence[str], handover_folder: Path, *, under_nsys: bool) -> Iterator[subprocess.Popen]:
    environment = _environment(handover_folder)
    if not under_nsys:
        with subprocess.Popen(program, env=environment) as process:
            yield process
        return
    streams = [os.dup(number) for number in (0, 1, 2)]
    program_with_streams = [sys.executable, "-I", "-S", str(OWN_STREAMS_SCRIPT), *map(str, streams), *program]
    report = (handover_folder / REPORT_FILE).with_suffix("")
    command = profile_command(program_with_streams, report, options=NSYS_OPTIONS)
    with (
        (handover_folder / NSYS_LOG_FILE).open("wb") as log,
        subprocess.Popen(
            command, env=environment, pass_fds=streams, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as process,
    ):
        for stream in streams:
            os.close(stream)
        yield process


@contextmanager
def _signals_passed_to(process: subprocess.Popen) -> Iterator[None]:
    """Inside the block, passes PASSED_SIGNALS on, and ignores SIGINT and SIGQUIT: the program gets them as well."""
    handlers = {number: lambda received, _: process.send_signal(received) for number in PASSED_SIGNALS}
    handlers |= {signal.SIGINT: lambda *_: None, signal.SIGQUIT: lambda *_: None}
    originals = {number: signal.getsignal(number) for number in handlers}
    # signals that this process ignores, as under nohup, its program ignores, too
    replaced = {number: original for number, original in originals.items() if original is not signal.SIG_IGN}
    try:
        for number in replaced:
            signal.signal(number, handlers[number])
        yield
    finally:
        for number, original in replaced.items():
            signal.signal(number, original)


def _wait_for_end(
    process: subprocess.Popen, time_limit_s: float, end_when: Callable[[], bool], ending_file: Path
) -> ProgramEnd:
    deadline = time.monotonic() + time_limit_s
    while True:
        try:
            return ProgramEnd(process.wait(min(POLL_S, max(0.0, deadline - time.monotonic()))))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                return ProgramEnd(_end_program(process), timed_out=True)
            if end_when():
                with suppress(OSError):
                    ending_file.touch()
                return ProgramEnd(_end_program(process), by_request=True)


def _end_program(process: subprocess.Popen) -> int:
    """Ends a program, with time to write its recording, and returns its return code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(ENDING_PATIENCE_S)
    process.kill()
    return process.wait()
