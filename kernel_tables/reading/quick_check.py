"""SQLite's own check of a file."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from kernel_tables.reading.small_queries import damaged, opened


def require_sound(path: Path, named: Path, abandoned: Event | None = None) -> None:
    """Raises ImpossibleCapture, which calls the file NAMED, where the check finds damage, or is ABANDONED."""
    with opened(path, named, abandoned) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")  # a constraint may compute for ever
        said = connection.execute("PRAGMA quick_check(1)").fetchone()  # up to the first thing wrong
    if said != ("ok",):
        raise damaged(named, str(said[0]) if said else "it says nothing")
