"""The process that measures: its options, its lease, where its time goes, and where it hangs. Imports no torch."""

import argparse
import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cs336_model.program.lease import take_lease

STAGES = (
    "import", "wait", "context", "initialise", "compile", "warmup", "measured", "energy", "profiler", "accuracy",
)  # fmt: skip
START_TICKS = 22  # field of /proc/PID/stat (proc(5)): when the process started, in ticks since boot
MAX_BEFORE_LIMIT_S = 5.0  # from the draft to the time limit
_IMPORTED_S = time.perf_counter()


def process_age_seconds() -> float:
    """Seconds since this process started (to 10 ms), including the start of the interpreter. Without /proc, seconds
    since this module was imported."""
    if not Path("/proc/self/stat").exists():
        return time.perf_counter() - _IMPORTED_S
    # the second field, in parentheses, may hold spaces, so only what follows it is split: from the third field on
    start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[START_TICKS - 3])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


class Progress:
    """The current work of the process (`during`, for the record of a run that fails), and the seconds of each stage,
    including one that failed."""

    def __init__(self) -> None:
        self.during = "import"
        self._stage: str | None = None  # the innermost that runs
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time in the with block belongs to the stage `name`; time of a nested stage does not belong to the outer
        one."""
        outer, self._stage, self.during = self._stage, name, name
        start_s, earlier_s = time.perf_counter(), sum(self.seconds.values())
        try:
            yield
            self.during = outer or name  # after an error it stays the stage in which that happened
        finally:
            self._stage = outer
            nested_s = sum(self.seconds.values()) - earlier_s
            self.seconds[name] += time.perf_counter() - start_s - nested_s


class LimitSchedule(NamedTuple):
    """When a process writes a draft and its stacks, shortly before its time limit. Both are times of time.monotonic."""

    draft_at_s: float
    stacks_at_s: float  # after the draft: reading the stacks of threads that run may crash Python


_limit_schedule: LimitSchedule | None = None  # None without a time limit


def print_stacks_before(time_limit_s: float | None, elapsed_s: float) -> None:
    """Prints the stack of each thread shortly before the time limit, if there is one; `elapsed_s` of it have passed.
    This needs no lock of Python: a thread that waits inside a library, such as NCCL, is shown too."""
    global _limit_schedule
    if time_limit_s is not None:
        before_s = min(MAX_BEFORE_LIMIT_S, time_limit_s / 4)
        limit_at_s = time.monotonic() + time_limit_s - elapsed_s
        _limit_schedule = LimitSchedule(limit_at_s - before_s, limit_at_s - before_s / 2)
        faulthandler.dump_traceback_later(max(_limit_schedule.stacks_at_s - time.monotonic(), 0.1))


@contextmanager
def before_limit(act: Callable[[], object]) -> Iterator[None]:
    """A with block that calls `act` shortly before the stacks are printed, if the block lasts that long; does nothing
    without a time limit. `act` runs in another thread, so it must wait while some thread keeps Python's lock."""
    if _limit_schedule is None:
        yield
        return
    timer = threading.Timer(max(_limit_schedule.draft_at_s - time.monotonic(), 0.0), act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def program_parser(module: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options that every measured program has."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--spec", required=True, help="specification of the run, as JSON (cs336_model/program/spec.py)")
    parser.add_argument("--output", required=True, type=Path, help="file for the result, as JSON")
    parser.add_argument("--lease", type=Path, help="socket where this program asks for its GPUs")
    parser.add_argument("--time-limit-s", type=float, help="seconds until it is killed; its stacks are printed before")
    return parser


def wait_for_lease(options: argparse.Namespace, progress: Progress) -> None:
    """Waits for the GPUs of the process; call it after all imports. The wait does not count towards the time limit."""
    with progress.stage("wait"):
        take_lease(options.lease)
    print_stacks_before(options.time_limit_s, process_age_seconds() - progress.seconds["wait"])
