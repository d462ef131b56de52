"""The proof that a file is sound: SQLite's own check of every page and row, made beside the reading."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel_tables.reading.small_queries import damaged, opened

SOUND = ("ok",)
NICE = 10


class Proof:
    """PRAGMA quick_check on a thread of its own, which gets what the reading and the figures leave of the processors.

    Reading alone does not find cells of zeros, a page that stands in twice or one that nothing refers to any more.
    """

    def __init__(self, path: Path, named: Path):
        self._path, self._named = path, named
        self._abandoned = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="soundness")
        self._verdict = self._pool.submit(self._check)

    def require(self) -> None:
        """Raises ImpossibleCapture unless the file is sound; waits until that is known."""
        self._verdict.result()

    def require_so_far(self) -> None:
        """Raises ImpossibleCapture where the file is known not to be sound; does not wait."""
        if self._verdict.done():
            self._verdict.result()

    def close(self) -> None:
        """Ends a check that nobody waits for."""
        self._abandoned.set()
        self._pool.shutdown()

    def _check(self) -> None:
        if sys.platform == "linux":  # there, a thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        require_sound(self._path, self._named, self._abandoned)


def require_sound(path: Path, named: Path, abandoned: threading.Event | None = None) -> None:
    """Raises ImpossibleCapture, which calls the file NAMED, where SQLite's own check finds it damaged."""
    with opened(path, named, abandoned) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")  # a constraint may compute for ever
        said = connection.execute("PRAGMA quick_check(1)").fetchone()
    if said != SOUND:
        raise damaged(named, str(said[0]) if said else "it says nothing")
