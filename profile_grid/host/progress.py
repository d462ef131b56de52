"""Lines on standard error, when a measurement gets its GPU and when it ends: how long it took, and what remains."""

import json
import os
import sys
import time
from pathlib import Path

from profile_grid.study.stages import STAGE_BY_NAME, STAGES

PLANNED_VARIABLE = "PROFILE_GRID_PLANNED"  # path of a file: estimated seconds by the path of each result
STARTED_VARIABLE = "PROFILE_GRID_STARTED"  # when Snakemake, which runs this measurement, started (Unix time)


class ProgressLine:
    """Prints when a measurement begins and ends. A file that the environment names lists all measurements that this
    Snakemake runs; without the file, the lines give neither their number nor the remaining time."""

    def __init__(self, stage: str, run: str, output: Path):
        workload = STAGE_BY_NAME[stage].workload
        # on-request stages do not count: a long name among them would widen every line
        width = max(len(peer.name) for peer in STAGES if peer.of_every_run and peer.workload is workload)
        self._name, self._output = f"{stage:{width}} {run}", str(output)
        self._started_unix_s = float(os.environ.get(STARTED_VARIABLE, "inf"))
        self._planned_s = _planned_seconds()

    def print_start(self) -> None:
        """Prints that the measurement has its GPU now, or the CPU."""
        say(f"{self._position(len(self._finished()) + 1)} {self._name} ...")

    def print_end(self, seconds: float) -> None:
        """Prints that the measurement has ended. `seconds` does not include the time that it waited for leases."""
        finished = {*self._finished(), self._output}
        say(f"{self._position(len(finished))} {self._name}: {seconds:.1f} s{self._remaining(finished)}")

    def _position(self, number: int) -> str:
        total = str(len(self._planned_s) or "?")
        return f"[{number:>{len(total)}}/{total}]"

    def _finished(self) -> set[str]:
        """The paths of the results of other measurements that this Snakemake has finished."""
        others = self._planned_s.keys() - {self._output}
        return {path for path in others if _changed_unix_s(path) >= self._started_unix_s}

    def _remaining(self, finished: set[str]) -> str:
        """`; 17 to go, about 4 min`; "" before two measurements have finished. The pace is the time since the start per
        estimated second of the finished ones, not per measurement, since the longest come first."""
        remaining_s = [seconds for path, seconds in self._planned_s.items() if path not in finished]
        if len(finished) < 2 or not remaining_s:
            return ""
        finished_s = sum(self._planned_s.get(path, 0.0) for path in finished)
        minutes = (time.time() - self._started_unix_s) * sum(remaining_s) / finished_s / 60
        about = f"about {minutes:.0f} min" if minutes >= 1 else "under a minute"
        return f"; {len(remaining_s)} to go, {about}"


def _planned_seconds() -> dict[str, float]:
    """Estimated seconds by the path of each result; {} without the file: no measurement fails for its progress line."""
    try:
        return json.loads(Path(os.environ[PLANNED_VARIABLE]).read_text())
    except (KeyError, FileNotFoundError):
        return {}


def _changed_unix_s(path: str) -> float:
    """When the file was last changed (Unix time); -inf if it does not exist."""
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return float("-inf")


def say_notes(notes: list[str]) -> None:
    """Prints notes, indented below the line that says that the measurement began."""
    for note in notes:
        say(f"    {note}")


def say(line: str) -> None:
    """Prints one line on standard error, which Snakemake passes on to the terminal."""
    sys.stderr.write(f"{line}\n")  # at once: other measurements print too
    sys.stderr.flush()
