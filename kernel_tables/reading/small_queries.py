"""Small SELECTs, through Python's own SQLite: each ends within a limit of time, and any text can be read.

Here and in the modules that use this one, `user_path` is the file that the user gave, which messages name.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

from kernel_tables.errors import ImpossibleCapture, impossible

PATIENCE_S = 10
SLOWEST_DISK_BYTES_PER_S = 10e6
OPERATIONS_BETWEEN_CHECKS = 100_000  # a millisecond; a check waits for Python's lock


@contextmanager
def read_only_connection(path: Path, user_path: Path, abandoned: Event | None = None) -> Iterator[sqlite3.Connection]:
    """A connection that reads the file.

    Invalid UTF-8 becomes replacement marks; a value may be as long as the file, or 1 MiB. A statement is ended when the
    connection has been open for longer than a slow disk needs for the file, or when `abandoned` is set. Raises
    ImpossibleCapture for that, and if SQLite refuses the file.
    """
    size = path.stat().st_size
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
            connection.text_factory = decode_lossy
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(size, 1 << 20))
            deadline = time.monotonic() + PATIENCE_S + size / SLOWEST_DISK_BYTES_PER_S
            connection.set_progress_handler(
                lambda: time.monotonic() > deadline or (abandoned is not None and abandoned.is_set()),
                OPERATIONS_BETWEEN_CHECKS,
            )
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # messages of SQLite may quote invalid text
        raise damaged(user_path, str(error)) from error


def damaged(user_path: Path, reason: str) -> ImpossibleCapture:
    """The exception for a file that SQLite cannot read."""
    reason = " ".join(reason.removeprefix("*** in database main ***").split())
    message = f"SQLite cannot read it ({reason}); it is damaged or cut short: copy or export it again"
    return impossible(user_path, "damaged_file", message)


def decode_lossy(raw: bytes) -> str:
    """The bytes as text, with replacement marks for invalid UTF-8."""
    return raw.decode("utf-8", "replace")


def as_text(value: object) -> str | None:
    """A value as text, whatever its type; None for NULL."""
    if value is None or isinstance(value, str):
        return value
    return decode_lossy(value) if isinstance(value, bytes) else str(value)
