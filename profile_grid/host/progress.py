"""One line per measurement on standard error: which of how many, what, how long it took, what remains."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from profile_grid.study.stages import BY_NAME, STAGES

PLANNED_VARIABLE = "PROFILE_GRID_PLANNED"  # the file that tells about the seconds of each measurement by its result
STARTED_VARIABLE = "PROFILE_GRID_STARTED"


class Announced:
    """Says when a measurement begins and ends. What this Snakemake has to measure in all stands in a file that the
    environment names; without one nothing is known of others."""

    def __init__(self, stage: str, run: str, output: Path):
        beside = [one for one in STAGES if one.of_every_run and one.workload is BY_NAME[stage].workload]
        self._what, self._own = f"{stage:{max(len(one.name) for one in beside)}} {run}", str(output)
        self._since = float(os.environ.get(STARTED_VARIABLE, "inf"))
        self._planned = _planned()

    def begins(self) -> None:
        """It has its GPU now, or the processor."""
        say(f"{self._place(len(self._finished()) + 1)} {self._what} ...")

    def ends(self, seconds: float) -> None:
        """It took so long, without the time that it waited."""
        finished = {*self._finished(), self._own}
        say(f"{self._place(len(finished))} {self._what}: {seconds:.1f} s{self._remaining(finished)}")

    def _place(self, number: int) -> str:
        total = str(len(self._planned) or "?")
        return f"[{number:>{len(total)}}/{total}]"

    def _finished(self) -> set[str]:
        """The measurements that this Snakemake has finished."""
        return {path for path in self._planned if path != self._own and _changed(path) >= self._since}

    def _remaining(self, finished: set[str]) -> str:
        """`; 17 to go, about 4 min`, from the pace so far, once two measurements tell it. The longest come first, so
        the pace is that of the seconds which they were thought to take."""
        left = [seconds for path, seconds in self._planned.items() if path not in finished]
        if len(finished) < 2 or not left:
            return ""
        done = sum(self._planned.get(path, 0.0) for path in finished)
        minutes = (time.time() - self._since) * sum(left) / done / 60
        about = f"about {minutes:.0f} min" if minutes >= 1 else "under a minute"
        return f"; {len(left)} to go, {about}"


def _planned() -> dict[str, float]:
    """About the seconds of each measurement by its result; none where the file is not there any more: a line of
    progress is no reason to lose a measurement."""
    try:
        return json.loads(Path(os.environ[PLANNED_VARIABLE]).read_text())
    except (KeyError, FileNotFoundError):
        return {}


def _changed(path: str) -> float:
    """When the file was changed last (Unix time); -inf where there is none."""
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return float("-inf")


def say_notes(notes: list[str]) -> None:
    """Says, below the line of the measurement that began, what is not as it should be."""
    for note in notes:
        say(f"    {note}")


def say(line: str) -> None:
    """One line on standard error, which Snakemake passes on to the terminal."""
    sys.stderr.write(f"{line}\n")  # in one piece: other measurements say something too
    sys.stderr.flush()
