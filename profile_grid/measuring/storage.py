"""One clear line where the disk is what fails: full, read-only, or not ours to write."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEXT_STEP = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EROFS: "make the folder writable, or run in a copy of the project",
    errno.EACCES: "make the folder writable, or run in a copy of the project",
    errno.EPERM: "make the folder writable, or run in a copy of the project",
}


@contextmanager
def clear_disk_errors(folder: Path) -> Iterator[None]:
    """Ends the process with one line when the block cannot write; every other error passes."""
    try:
        yield
    except OSError as error:
        if error.errno not in NEXT_STEP:
            raise
        where = error.filename or folder
        sys.exit(f"cannot write {where}: {error.strerror}; {NEXT_STEP[error.errno]}, then run snakemake again")
