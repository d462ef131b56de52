"""Whether a file is SQLite and complete, from its first bytes and its size; and the proof that it is sound: SQLite's
own check of the file, which runs while it is read.

Reading does not find cells of zeros, pages that occur twice or pages that nothing refers to.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from kernel_tables.errors import TraceError
from kernel_tables.files import SQLITE_MAGIC, first_bytes
from kernel_tables.reading.small_queries import damaged, opened

HEADER_BYTES = 100


def require_sound(path: Path, named: Path, abandoned: Event | None = None) -> None:
    """Raises ImpossibleCapture, with `named` as the file's name, if the check finds damage or is `abandoned`."""
    with opened(path, named, abandoned) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")  # a constraint may run forever
        row = connection.execute("PRAGMA quick_check(1)").fetchone()  # up to the first fault
    if row != ("ok",):
        raise damaged(named, str(row[0]) if row else "it says nothing")


class Proof:
    """PRAGMA quick_check on a separate thread, started at once.

    It takes half as long as two threads together need to read the same file, and it is the longest piece of work that
    cannot be divided: it runs next to them, and on two processors it ends when they do.
    """

    def __init__(self, path: Path, named: Path):
        self._abandoned = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="soundness")
        self._verdict = self._pool.submit(require_sound, path, named, self._abandoned)

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


def require_whole_sqlite(path: Path, named: Path | None = None) -> None:
    """Raises TraceError unless the file is SQLite, closed by its writer, and as long as its header says."""
    named = named or path
    header = first_bytes(path, HEADER_BYTES)
    if not header:
        raise TraceError(f"{named}: the file is empty; the export probably failed: export the report again")
    if not header.startswith(SQLITE_MAGIC):
        raise TraceError(
            f"{named}: not an SQLite file (it begins with {header[:8]!r});"
            " give an export made by `nsys export --type sqlite`, or a .nsys-rep"
        )
    if len(header) < HEADER_BYTES or _bytes_wanted(header) > path.stat().st_size:
        raise TraceError(
            f"{named}: cut off: {path.stat().st_size} bytes where its header says {_bytes_wanted(header)};"
            " the copy or the export did not finish: copy or export it again"
        )
    for suffix in ("-journal", "-wal"):
        journal = path.with_name(path.name + suffix)
        if journal.exists() and journal.stat().st_size:
            raise TraceError(
                f"{named}: {journal.name} is next to it, so its writer has not finished;"
                " wait for the export to end, or export the report again"
            )


def _bytes_wanted(header: bytes) -> int:
    """The size in bytes by the header; 0 if it states no valid size (SQLite older than 3.7)."""
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    valid = header[24:28] == header[92:96]
    return int.from_bytes(header[28:32], "big") * page_size if valid else 0
