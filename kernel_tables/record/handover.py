"""What the command and the processes of a recorded program leave for each other in a folder: the settings, which say
what to record, and the notes of the processes, one line of JSON per event. Imports the standard library alone."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

TORCH, NSYS, TIMER = "torch", "nsys", "timer"  # profilers, and what takes the time without one
STEPS, CALLS, RANGE = "steps", "calls", "range"  # what opens a window
# what defines a step, beside RANGE: the step of an optimizer, the replay of a CUDA graph, the call of a model
OPTIMIZER, GRAPH, MODULE = "optimizer", "graph", "module"
STEP, MODULES = "step", "modules"  # kinds of ranges that the recorder opens; STEP is also the name of such a range
AUTO, NONE = "auto", "none"  # beside MODULES, which ranges it opens
UNFINISHED = "step (unfinished)"  # the name of the range of a step in which the window ended
DEFAULT_SKIP = 5
DEFAULT_STEPS = 6  # the diagnosis compares steps only if there are as many
SETTINGS_FILE, NOTES_FILE = "settings.json", "notes.jsonl"
RANK_WAIT_S = 10.0  # for ranks that reach no window: their program may do something else, or have ended


@dataclass(frozen=True)
class Settings:
    """How the window is found, and what records it.

    `window` says what opens it: STEPS of any kind, CALLS of a model, or instances of a RANGE; `skip` of them are
    skipped, `steps` recorded. `added_ranges`: whether steps and modules get ranges: both (MODULES), NONE, or with AUTO
    steps, if the program has opened no range `step` before, and modules, if it has opened no range itself. `remedies`
    are the names of those that are applied in the program, see remedies.Remedies."""

    profiler: str = TORCH
    window: str = STEPS
    skip: int = DEFAULT_SKIP
    steps: int = DEFAULT_STEPS
    range: str | None = None
    added_ranges: str = AUTO
    remedies: Sequence[str] = ()

    def write(self, folder: Path) -> None:
        """Writes the settings for the processes of the program."""
        (folder / SETTINGS_FILE).write_text(json.dumps(asdict(self)))


def read_settings(folder: Path) -> Settings:
    """The settings that the command left in the folder."""
    return Settings(**json.loads((folder / SETTINGS_FILE).read_text()))


class Notes:
    """The notes of this process, in the folder that the command and the processes of the program share.

    Its events: python; torch, once it is imported; profile, if the program uses PyTorch's profiler;
    rank, if it has joined others before its window; elsewhere, if another process is recorded; of a window: open,
    steps, closed, timed, saved, lost; refused, if the profiler did not start; remedy, if one was applied or cannot be;
    exit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, event: str, **facts: object) -> None:
        """Appends one line, in one write, since other processes append to the same file. If the disk is full, or the
        folder is gone, nothing is written."""
        line = json.dumps({"event": event, "pid": os.getpid(), "unix_s": time.time(), **facts}) + "\n"
        with suppress(OSError), (self.folder / NOTES_FILE).open("ab", buffering=0) as file:
            file.write(line.encode())

    def claim(self, name: str, run: str | None = None) -> bool:
        """Whether this process gets what only one may have: the first process that calls this with `name` does, and if
        it is a rank, so do the other ranks of its `run`; none if the folder is gone."""
        path, claimant = self.folder / name, run or f"process {os.getpid()}"
        with suppress(OSError):
            with suppress(FileExistsError):
                path.symlink_to(claimant)  # a link exists at once with its text
            return os.readlink(path) == claimant
        return False


def read_notes(folder: Path) -> list[dict]:
    """The notes of all processes, in order, except a line that a full disk cut off."""
    notes, path = [], folder / NOTES_FILE
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):
            notes.append(json.loads(line))
    return notes


def trace_file(folder: Path, pid: int) -> Path:
    return folder / f"trace-{pid}.json"


def one_line_error(error: Exception) -> str:
    """The class and the first line of an error; of a RuntimeError, the line."""
    return f"{type(error).__name__}: {error}".removeprefix("RuntimeError: ").partition("\n")[0]
