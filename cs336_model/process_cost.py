"""Where the time of the process goes, from its start to its result. Imports no torch."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


class Stopwatch:
    """Seconds by stage. A stage that fails is counted until its failure."""

    def __init__(self, stages: tuple[str, ...]) -> None:
        self.seconds = dict.fromkeys(stages, 0.0)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - started
