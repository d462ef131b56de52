"""What the processes of a recorded program leave for the command: one line of JSON for each thing that happened."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

FILE = "notes.jsonl"
CLAIM = "claim"


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

    def claim(self) -> bool:
        """Whether this process is the one that is recorded: the first to ask, while the command is there."""
        try:
            os.close(os.open(self.folder / CLAIM, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            return False
        return True


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
