"""SQLite's own check of a file, or of some of its tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Event

from kernel_tables.reading.small_queries import damaged, opened

WHOLE_FILE = "1"  # up to the first thing wrong


def require_sound(path: Path, named: Path, abandoned: Event | None = None, tables: Iterable[str] | None = None) -> None:
    """Raises ImpossibleCapture, which calls the file NAMED, where the check finds damage, or is ABANDONED.

    The check is of the TABLES that are there, or of the whole file.
    """
    with opened(path, named, abandoned) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")  # a constraint may compute for ever
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for part in [WHOLE_FILE] if tables is None else there.intersection(tables):
            said = connection.execute(f"PRAGMA quick_check({part})").fetchone()
            if said != ("ok",):
                raise damaged(named, str(said[0]) if said else "it says nothing")
