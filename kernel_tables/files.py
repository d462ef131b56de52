"""Checks before a file is written: no input or capture of nsys is overwritten, and a full disk is reported as such."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_tables.errors import TraceError

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
SQLITE_MAGIC = b"SQLite format 3\x00"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path next to `path` to write to. It is renamed to `path` when the block succeeds, and removed when it fails.

    If `path` is a link, its target is written, and the link stays. A terminal or a pipe is written directly."""
    if path.exists() and not path.is_file():  # a terminal, a pipe: nothing can be renamed to it
        yield path
        return
    path = Path(os.path.realpath(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def full_disk_as_os_error(path: Path) -> Iterator[None]:
    """Turns SQLite's error for a full disk into the OSError that other writers raise."""
    import sqlite3  # here, since the command's help needs the rest of this module

    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error


def require_no_capture(target: Path, inputs: Iterable[Path]) -> None:
    """Raises TraceError if `target` is one of `inputs` (by any name or link), or an existing report or SQLite file."""
    if not target.is_file():
        return
    with target.open("rb") as file:
        is_capture = file.read(16) == SQLITE_MAGIC or any(path.exists() and target.samefile(path) for path in inputs)
    if is_capture or target.name.removesuffix(".gz").endswith((".sqlite", *REPORT_SUFFIXES)):
        raise TraceError(f"{target}: that is a capture, which is never written over; name another file")
