"""Runs the recorded program, with its own streams, signals and folder; only its environment has further variables."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_tables.record.nsys import profile_command

INJECTED_FOLDER = Path(__file__).with_name("injected")
HANDOVER_VARIABLE = "KERNEL_TABLES_RECORDING"
REPORT_FILE, NSYS_LOG_FILE = "capture.nsys-rep", "nsys.log"
ENDING_PATIENCE_S = 10.0  # after each signal, for the program to end by itself


@dataclass(frozen=True)
class ProgramEnd:
    """How the program ended."""

    returncode: int  # negative: the signal
    by_request: bool = False  # this command ended it once its window was recorded, as --end requests
    interrupted: bool = False  # meanwhile, a signal asked this command to end

    @property
    def exit_status(self) -> int:
        """The exit status as in a shell, 128 + the signal; 0 if the program was ended by request."""
        return 0 if self.by_request else self.returncode if self.returncode >= 0 else 128 - self.returncode

    @property
    def phrase(self) -> str:
        """How it ended, in words: "ended with exit status 3", or "was ended by SIGTERM"."""
        if self.by_request:
            return "was ended as by Ctrl-C, since its window is recorded"
        number = -self.returncode if self.returncode < 0 else self.returncode - 128
        if number in set(signal.Signals):
            return f"was ended by {signal.Signals(number).name}"
        return f"ended with exit status {self.returncode}"


def run_recorded(
    program: Sequence[str], folder: Path, *, nsys_options: Sequence[str] | None, end_when: Callable[[], bool],
    log: Path | None = None,
) -> ProgramEnd:  # fmt: skip
    """Runs the program, under nsys unless `nsys_options` is None, and ends it once `end_when`, which is called
    regularly, returns true. With a `log`, that gets what the program prints; the program has no input, and ends with
    all its processes, also if a signal asks this process to end.

    The notes of its processes and the files of nsys are in the folder afterwards. Ctrl-C reaches the program from the
    terminal, as always; this process passes other signals on.
    """
    with (
        open(log or os.devnull, "wb") as log_file,
        _running_program(program, folder, nsys_options, log_file.fileno() if log else None) as process,
        _signals_passed_to(process) as received,
    ):
        while True:
            with suppress(subprocess.TimeoutExpired):
                end = ProgramEnd(process.wait(0.2), interrupted=bool(received))
                if log:  # of what it has started, nothing stays
                    _kill_all(folder, process.pid)
                return end
            if end_when() or (log and received):
                if log and nsys_options is None:
                    _kill_all(folder, process.pid)
                    status = process.wait()
                else:
                    status = _end_program(process)
                return ProgramEnd(status, by_request=True, interrupted=bool(received))


@contextmanager
def _running_program(
    program: Sequence[str], folder: Path, nsys_options: Sequence[str] | None, log: int | None
) -> Iterator[subprocess.Popen]:
    paths = [str(INJECTED_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"KINETO_LOG_LEVEL": "99"}  # else PyTorch's profiler reports its start and stop on standard error
    environment |= os.environ | {HANDOVER_VARIABLE: str(folder), "PYTHONPATH": os.pathsep.join(paths)}
    null = subprocess.DEVNULL
    if nsys_options is None:
        own = {} if log is None else {"stdin": null, "stdout": log, "stderr": log, "start_new_session": True}
        with subprocess.Popen(program, env=environment, **own) as process:
            yield process
        return
    # Under nsys the program gets the original standard streams, so that nsys's own messages stay out of them.
    own_streams = "import os, sys; [(os.dup2(int(s), n), os.close(int(s))) for n, s in enumerate(sys.argv[1:4])];"
    own_streams += " os.execvp(sys.argv[4], sys.argv[4:])"
    streams = [os.dup(number) for number in ((0, 1, 2) if log is None else (0, log, log))]
    command = [*profile_command((folder / REPORT_FILE).with_suffix(""), nsys_options), sys.executable, "-I", "-S"]
    command += ["-c", own_streams, *map(str, streams), *program]
    with (folder / NSYS_LOG_FILE).open("wb") as nsys_log:
        own = {"stdin": null, "stdout": nsys_log, "stderr": nsys_log, "pass_fds": streams}
        with subprocess.Popen(command, env=environment, **own) as process:
            for stream in streams:
                os.close(stream)
            yield process


@contextmanager
def _signals_passed_to(process: subprocess.Popen) -> Iterator[list[int]]:
    """Inside the block, passes signals on, but not SIGINT and SIGQUIT: the program gets them as well. Yields the list
    of those received that ask to end."""
    received: list[int] = []

    def hear(number: int, _: object) -> None:
        if number not in (signal.SIGUSR1, signal.SIGUSR2):
            received.append(number)
        if number in passed:
            process.send_signal(number)

    passed = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    originals = {number: signal.getsignal(number) for number in (*passed, signal.SIGINT, signal.SIGQUIT)}
    # signals that this process ignores, as under nohup, its program ignores, too
    replaced = {number: original for number, original in originals.items() if original is not signal.SIG_IGN}
    try:
        for number in replaced:
            signal.signal(number, hear)
        yield received
    finally:
        for number, original in replaced.items():
            signal.signal(number, original)


def _kill_all(folder: Path, session: int) -> None:
    """Kills all processes of a session, and those that got this folder in their environment, since others would save
    what they have learnt, or go on beside the next one. One that renames itself loses its environment."""
    given = f"{HANDOVER_VARIABLE}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            pid = int(path.name)
            if os.getsid(pid) == session or given in (path / "environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def _end_program(process: subprocess.Popen) -> int:
    """Ends a program, with time to write its recording, and returns its return code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(ENDING_PATIENCE_S)
    process.kill()
    return process.wait()
