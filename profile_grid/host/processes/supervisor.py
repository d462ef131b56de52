"""Runs one command as the ancestor of all its processes, and leaves none of them running.

    python -I -S supervisor.py COMMAND ...

nsys puts its agent and the profiled program into separate sessions, and its agent outlives its parent, so neither a
process group nor a session contains all processes. So this process is a subreaper (prctl(2)): orphans below it become
its children. It kills all of them when the command has ended, or when its standard input closes, because the process
at the other end closed it or is gone. Then this process ends with the exit status or the signal of the command.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
POLL_S = 0.02
GRACE_S = 1.0  # for descendants that still run when the command has ended
KILL_TIMEOUT_S = 60.0  # a process inside the GPU's driver cannot die before the driver returns
ENDED_STATES = "ZX"  # zombie and dead, in proc(5)


class ProcessStat(NamedTuple):
    """What /proc says of a process."""

    state: str  # one letter, see proc(5)
    parent: int  # its id


def main(command: list[str]) -> None:
    """Runs the command to its end, kills its remaining processes, and ends with its exit status or signal."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent
        )
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    threading.Thread(target=_end_all_when_input_closes, daemon=True).start()
    returncode = program.wait()
    _wait_for_descendants()
    end_descendants()
    _end_like(returncode)


def descendants(ancestor: int) -> list[int]:
    """The ids of the live processes below one process, its children first."""
    children: dict[int, list[int]] = {}
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        stat = process_stat(pid)
        if stat and stat.state not in ENDED_STATES:
            children.setdefault(stat.parent, []).append(pid)
    pids = list(children.get(ancestor, ()))
    for pid in pids:
        pids += children.get(pid, ())
    return pids


def end_descendants() -> None:
    """Kills and reaps every process below this one, for KILL_TIMEOUT_S at most."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while time.monotonic() < deadline:
        _reap()
        remaining = descendants(os.getpid())
        if not remaining:
            return
        _kill(remaining)
        time.sleep(POLL_S)


def _wait_for_descendants() -> None:
    """Gives remaining processes, such as nsys's agent, a moment to clean up and end."""
    deadline = time.monotonic() + GRACE_S
    while descendants(os.getpid()) and time.monotonic() < deadline:
        _reap()
        time.sleep(POLL_S)


def _end_all_when_input_closes() -> None:
    """Waits until standard input closes, then kills all processes below this one until the main thread, which waits for
    the command, ends this process. Reaps none, since that could take the command's exit status from the main thread."""
    while os.read(0, 1):  # b"" once it is closed
        continue
    while True:
        _kill(descendants(os.getpid()))
        time.sleep(POLL_S)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def process_stat(pid: int) -> ProcessStat | None:
    """The state and the parent of the process with this id; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the command's name, in parentheses, may itself contain spaces and parentheses
    state, parent = fields.rpartition(")")[2].split()[:2]
    return ProcessStat(state, int(parent))


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end_like(returncode: int) -> None:
    if returncode < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no second core file, besides the command's
        if -returncode != signal.SIGKILL:  # which has no handler to reset
            signal.signal(-returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -returncode)
    os._exit(returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
