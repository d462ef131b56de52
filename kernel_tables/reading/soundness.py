"""The proof that a file is sound: SQLite's own check of all of it, made beside the reading.

Reading alone does not find cells of zeros, a page that stands in twice or one that nothing refers to any more.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel_tables.reading.quick_check import require_sound


class Proof:
    """PRAGMA quick_check on a thread of its own, begun when it is made.

    It takes half as long as the reading of the same file by two threads together, and is the longest piece of work that
    cannot be divided: it shares the processors as an equal, so that on two of them it ends with the figures.
    """

    def __init__(self, path: Path, named: Path):
        self._abandoned = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="soundness")
        self._verdict = self._pool.submit(require_sound, path, named, self._abandoned)

    def require(self) -> None:
        """Raises ImpossibleCapture unless the file is sound; waits for the check."""
        self._verdict.result()

    def require_so_far(self) -> None:
        """Raises ImpossibleCapture where the file is known not to be sound: damaged pages may lead round and round."""
        if self._verdict.done():
            self._verdict.result()

    def close(self) -> None:
        """Ends a check that nobody waits for."""
        self._abandoned.set()
        self._pool.shutdown()
