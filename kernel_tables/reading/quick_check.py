"""SQLite's own check of a file."""

from pathlib import Path
from threading import Event

from kernel_tables.reading.small_queries import damaged, opened


def require_sound(path: Path, named: Path, abandoned: Event | None = None) -> None:
    """Raises ImpossibleCapture, with `named` as the file's name, if the check finds damage or is `abandoned`."""
    with opened(path, named, abandoned) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")  # a constraint may compute for ever
        row = connection.execute("PRAGMA quick_check(1)").fetchone()  # up to the first fault
    if row != ("ok",):
        raise damaged(named, str(row[0]) if row else "it says nothing")
