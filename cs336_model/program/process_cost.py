"""Where the time of the process goes, from its start to its result, and where it hangs. Imports no torch."""

import faulthandler
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STAGES = ("import", "wait", "context", "initialise", "compile", "warmup", "measured", "energy", "profiler", "accuracy")
_IMPORTED_S = time.perf_counter()


def process_age_seconds() -> float:
    """Seconds since the kernel started this process (to 10 ms), the interpreter's own start included. Where there is
    no /proc: seconds since this module was imported."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return time.perf_counter() - _IMPORTED_S
    # proc(5): field 22 is the start in clock ticks since boot; the second field, in parentheses, may hold spaces.
    start_ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


class Progress:
    """What the process is doing (`during`, for the record of a run that does not get to its end), and the seconds that
    each stage took, one that failed included."""

    def __init__(self) -> None:
        self.during = "import"
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time spent inside belongs to the stage `name`; stages may nest, and the outer one then loses that time."""
        self.during, started, inner = name, time.perf_counter(), sum(self.seconds.values())
        try:
            yield
        finally:
            inner = sum(self.seconds.values()) - inner
            self.seconds[name] += time.perf_counter() - started - inner


BEFORE_LIMIT_S = 5.0


def print_stacks_before(time_limit_s: float | None, elapsed_s: float) -> None:
    """Prints them some seconds before the limit, where there is one, counted from `elapsed_s` ago. Python needs no lock
    for that: a thread that waits inside a library, such as NCCL, is shown too."""
    if time_limit_s is not None:
        early = min(BEFORE_LIMIT_S, time_limit_s / 4)
        faulthandler.dump_traceback_later(max(time_limit_s - early - elapsed_s, 0.1))
