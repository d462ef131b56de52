"""Programs run to their end or to a time limit, in an environment that is listed name by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
)
LOG_LINES_IN_MESSAGE = 15


class ProgramFailed(RuntimeError):
    """A program that was run ended badly; the message holds the end of its log and the path of the whole."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended: its exit status (negative: the signal), whether the time limit ended it, and seconds."""

    returncode: int
    timed_out: bool
    seconds: float

    @property
    def succeeded(self) -> bool:
        return self.returncode == 0 and not self.timed_out


def allowed_environment(extra_names: Iterable[str] = (), source: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a measured program may see: those it needs, and the names that config.yaml adds."""
    source = os.environ if source is None else source
    names = [*NEEDED_VARIABLES, *extra_names]
    return {name: source[name] for name in names if name in source}


def run_program(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, time_limit_s: float, echo: bool = False
) -> Outcome:
    """How the program ended. Its output is appended to `log`; at the time limit it is ended with all its children.

    The program leads a session of its own, and a watchdog ends that session when this process dies, even by SIGKILL:
    nothing is left behind on a GPU.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    watchdog = _watchdog(process.pid)
    timed_out = False
    try:
        process.wait(timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        end_session(process.pid)
        process.wait()
        watchdog.kill()
        watchdog.communicate()
    return Outcome(process.returncode, timed_out, time.monotonic() - started)


def end_session(session: int) -> None:
    """Ends every process of a session, the leader's children included; nothing if none is left."""
    for pid in _session_members(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def failure_message(what: str, outcome: Outcome, log: Path, time_limit_s: float) -> str:
    """What happened, the last lines of the log, and where the whole log is."""
    how = f"was ended at the time limit of {time_limit_s:g} s" if outcome.timed_out else _how(outcome.returncode)
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_IN_MESSAGE:] if log.exists() else []
    tail = "\n".join(f"  | {line}" for line in lines) or "  | (it printed nothing)"
    return f"{what} {how}; the end of its log:\n{tail}\nwhole log: {log}"


def _how(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    return f"was ended by {signal.Signals(-returncode).name}"


def _session_members(session: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # the command's name, in parentheses, may itself hold spaces and parentheses
            if int(stat.rpartition(")")[2].split()[3]) == session:
                members.append(int(entry.name))
    return members


def _watchdog(session: int) -> subprocess.Popen:
    """A process that waits for this one to close its end of a pipe, by dying too, and then ends the session."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(session)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__":  # the watchdog
    sys.stdin.read()
    end_session(int(sys.argv[1]))
