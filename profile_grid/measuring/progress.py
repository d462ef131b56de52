"""One line per measurement on standard error: which of how many, what, how long it took, what remains."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from profile_grid.study.stages import BY_NAME, STAGES

TOTAL_VARIABLE = "PROFILE_GRID_MEASUREMENTS"
STARTED_VARIABLE = "PROFILE_GRID_STARTED"
WIDEST = max(len(stage.name) for stage in STAGES if stage.of_every_run)


class Announced:
    """Says when a measurement begins and ends; what this Snakemake has to measure in all stands in the environment."""

    def __init__(self, stage: str, run: str, output: Path):
        self._what, self._runs = f"{stage:{WIDEST}} {run}", output.parent.parent
        self._total = os.environ.get(TOTAL_VARIABLE, "?")
        self._since = float(os.environ.get(STARTED_VARIABLE, "inf"))

    def begins(self) -> None:
        """It has its GPU now, or the processor."""
        say(f"{self._place(_finished(self._runs, self._since) + 1)} {self._what} ...")

    def ends(self, seconds: float) -> None:
        """It took so long, without the time that it waited."""
        number = _finished(self._runs, self._since) + 1
        left = int(self._total) - number if self._total.isdigit() else 0
        remaining = _remaining(number, left, time.time() - self._since)
        say(f"{self._place(number)} {self._what}: {seconds:.1f} s{remaining}")

    def _place(self, number: int) -> str:
        return f"[{number:>{len(self._total)}}/{self._total}]"


def say_notes(notes: list[str]) -> None:
    """Says, below the line of the measurement that began, what is not as it should be."""
    for note in notes:
        say(f"    {note}")


def _finished(runs: Path, since: float) -> int:
    """Measurements below results/runs that were finished since a time."""
    files = (path for stage in BY_NAME.values() for path in runs.glob(f"*/{stage.result}"))
    return sum(path.stat().st_mtime >= since for path in files)


def _remaining(finished: int, left: int, elapsed_s: float) -> str:
    """`; 17 to go, about 4 min`, from the pace so far, once two measurements tell it."""
    if finished < 2 or left <= 0:
        return ""
    minutes = elapsed_s / finished * left / 60
    return f"; {left} to go, about {minutes:.0f} min" if minutes >= 1 else f"; {left} to go, under a minute"


def say(line: str) -> None:
    """One line on standard error, which Snakemake passes on to the terminal."""
    sys.stderr.write(f"{line}\n")  # in one piece: other measurements say something too
    sys.stderr.flush()
