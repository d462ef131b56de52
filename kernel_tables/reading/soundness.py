"""The proof that a file is sound: SQLite's own check of the file, which runs while it is read.

Reading does not find cells of zeros, pages that occur twice or pages that nothing refers to.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from kernel_tables.reading.small_queries import damaged, opened


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
