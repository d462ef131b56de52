"""What the processes of a recorded program leave for the command: one line of JSON for each thing that happened."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

FILE = "notes.jsonl"
CLAIM = "claim"
RANK = "rank"  # the event of a process that has joined others


class Notes:
    """The folder in which the command and the processes of its program meet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, event: str, **facts: object) -> None:
        """Appends one line, in one write, since other processes append to the same file. Where the disk is full, or the
        command is gone, the program goes on without."""
        line = json.dumps({"event": event, "pid": os.getpid(), "unix_s": time.time(), **facts}) + "\n"
        with suppress(OSError):
            descriptor = os.open(self.folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def claim(self, *, as_rank: bool = False) -> bool:
        """Whether this process is recorded: the first to ask is, while the command is there, and where that is a rank
        of several, so are the others."""
        own, shared = self.folder / f"{CLAIM}-{os.getpid()}", self.folder / CLAIM
        try:
            own.write_text(RANK if as_rank else "process")
            os.link(own, shared)  # with its text, which who comes next reads
        except FileExistsError:
            return as_rank and shared.read_text() == RANK
        except OSError:
            return False
        finally:
            with suppress(OSError):
                own.unlink()
        return True

    def first_to(self, what: str) -> bool:
        """Whether this process is the first to ask for WHAT; False where the folder is gone."""
        try:
            os.close(os.open(self.folder / what, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            return False
        return True


def trace_file(folder: Path, pid: int) -> Path:
    """Where PyTorch's profiler of a process leaves its trace."""
    return folder / f"trace-{pid}.json"


def read_notes(folder: Path) -> list[dict]:
    """What the processes noted, in order; a line that a full disk cut off is left out."""
    path = folder / FILE
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
