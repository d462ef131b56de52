"""What a program prints without end, cut in its middle: the beginning says what ran, the end what failed."""

from __future__ import annotations

import os
from pathlib import Path

KEPT_BYTES = 500_000  # of each end of a log
KEPT_CHARACTERS = 200  # of each end of a line in a message


def cut_log(log: Path, start: int) -> None:
    """Takes the middle out of what stands in the log from `start` on, where that is more than both its ends."""
    with log.open("r+b") as stream:
        left_out = stream.seek(0, os.SEEK_END) - start - 2 * KEPT_BYTES
        if left_out <= 0:
            return
        stream.seek(-KEPT_BYTES, os.SEEK_END)
        end = stream.read()
        stream.truncate(start + KEPT_BYTES)
        stream.seek(0, os.SEEK_END)
        stream.write(f"\n... {left_out} bytes that were printed here are left out ...\n".encode() + end)


def cut_line(line: str) -> str:
    """The line, or its two ends where it is long."""
    if len(line) <= 2 * KEPT_CHARACTERS:
        return line
    left_out = len(line) - 2 * KEPT_CHARACTERS
    return f"{line[:KEPT_CHARACTERS]} ... {left_out} characters left out ... {line[-KEPT_CHARACTERS:]}"
