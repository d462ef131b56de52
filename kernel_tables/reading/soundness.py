"""Whether a file is SQLite and complete, by its first bytes and its size; and the proof that it is sound: SQLite's
own check, which runs while the file is read.

Reading alone does not notice cells of zeros, pages that occur twice, or pages that nothing refers to. That a row is
shorter than its columns is noticed only if the last column is read.
"""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel_tables import errors, files
from kernel_tables.reading.small_queries import damaged, read_only_connection

HEADER_BYTES = 100
OPERATIONS_PER_PAGE = 10  # newer versions of SQLite count one or two while they check a page


def require_sound(path: Path, user_path: Path) -> None:
    """Raises ImpossibleCapture if SQLite's check finds damage."""
    with read_only_connection(path, user_path) as connection:
        _require_ok(connection, user_path, "quick_check(1)")


def _require_ok(connection: sqlite3.Connection, user_path: Path, check: str) -> None:
    connection.execute("PRAGMA ignore_check_constraints = ON")  # a constraint may run forever
    row = connection.execute(f"PRAGMA {check}").fetchone()  # up to the first fault
    if row != ("ok",):
        raise damaged(user_path, str(row[0]) if row else "it says nothing")


def _require_sound_pages(path: Path, user_path: Path) -> None:
    """Raises ImpossibleCapture unless every page of the file is sound, and in one place of one table.

    quick_check begins with the pages. The rows follow, which take ten times as long; so the check is ended after as
    many operations as the pages can need.
    """
    with read_only_connection(path, user_path) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        has_reached_rows = threading.Event()

        def end_at_rows() -> bool:
            has_reached_rows.set()
            return True  # SQLite ends the statement

        connection.set_progress_handler(end_at_rows, OPERATIONS_PER_PAGE * pages)
        try:
            _require_ok(connection, user_path, "quick_check(1)")
        except sqlite3.OperationalError:
            if not has_reached_rows.is_set():
                raise


class Proof:
    """SQLite's check of all pages, and of the rows of `tables`, on a separate thread, started at once.

    Rows of other tables are proven sound by reading them up to their last column.
    """

    def __init__(self, path: Path, user_path: Path, tables: list[str]):
        self._abandoned = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="soundness")
        self._verdict = self._pool.submit(self._prove, path, user_path, tables)

    def _prove(self, path: Path, user_path: Path, tables: list[str]) -> None:
        _require_sound_pages(path, user_path)
        with read_only_connection(path, user_path, self._abandoned) as connection:
            for table in tables:
                quoted = table.replace('"', '""')
                _require_ok(connection, user_path, f'quick_check("{quoted}")')

    def require(self) -> None:
        """Raises ImpossibleCapture unless the file is sound; waits for the check."""
        self._verdict.result()

    def require_so_far(self) -> None:
        """Raises ImpossibleCapture if damage has been found: reading damaged pages may never end."""
        if self._verdict.done():
            self._verdict.result()

    def close(self) -> None:
        """Ends a check that nobody waits for."""
        self._abandoned.set()
        self._pool.shutdown()


def require_whole_sqlite(path: Path, user_path: Path | None = None) -> None:
    """Raises TraceError unless the file is SQLite, closed by its writer, and at least as long as its header says."""
    user_path = user_path or path
    header = files.first_bytes(path, HEADER_BYTES)
    if not header:
        raise errors.TraceError(f"{user_path}: the file is empty; the export probably failed: export the report again")
    if not header.startswith(files.SQLITE_MAGIC):
        raise errors.TraceError(
            f"{user_path}: not an SQLite file (it begins with {header[:8]!r});"
            " give an export made by `nsys export --type sqlite`, or a .nsys-rep"
        )
    if len(header) < HEADER_BYTES or _stated_bytes(header) > path.stat().st_size:
        raise errors.TraceError(
            f"{user_path}: cut off: {path.stat().st_size} bytes where its header says {_stated_bytes(header)};"
            " the copy or the export did not finish: copy or export it again"
        )
    for suffix in ("-journal", "-wal"):
        journal = path.with_name(path.name + suffix)
        if journal.exists() and journal.stat().st_size:
            raise errors.TraceError(
                f"{user_path}: {journal.name} is next to it, so its writer has not finished;"
                " wait for the export to end, or export the report again"
            )


def _stated_bytes(header: bytes) -> int:
    """The size in bytes by the header; 0 if it states no valid size (SQLite older than 3.7)."""
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    is_valid = header[24:28] == header[92:96]
    return int.from_bytes(header[28:32], "big") * page_size if is_valid else 0
