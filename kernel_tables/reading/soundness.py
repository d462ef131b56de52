"""The proof that a file is sound: SQLite's own check, made beside the reading, or the numbers of a large file's rows.

Reading alone does not find cells of zeros, a page that stands in twice or one that nothing refers to any more.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from kernel_tables.reading.quick_check import require_sound
from kernel_tables.reading.schema import SMALL_TABLES

NICE = 10
LARGE_BYTES = 256 << 20  # SQLite's check takes about a second for as many
CORES_THAT_BEAR_THE_CHECK = 3  # two read
ROW = "row"


class Proof:
    """PRAGMA quick_check on a thread of its own, which gets what the reading and the figures leave of the processors.

    Of a large file it takes as long as all else. Where no third core bears that, it sees the small tables only; that
    every row of the others is there, and once, is told by their numbers (RowNumbers), and a table whose numbers do not
    tell it is checked at last.
    """

    def __init__(self, path: Path, named: Path):
        self._path, self._named = path, named
        self._is_large = path.stat().st_size > LARGE_BYTES and usable_cores() < CORES_THAT_BEAR_THE_CHECK
        self._numbers: dict[str, RowNumbers] = {}
        self._checked: set[str] = set()  # tables of a large file that SQLite's check has seen and found sound
        self._abandoned = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="soundness")
        self._verdict = self._pool.submit(self._check)

    def numbers_of(self, table: str) -> RowNumbers | None:
        """What has to see the number of every row of a table; None where the proof does without."""
        return self._numbers.setdefault(table, RowNumbers()) if self._is_large else None

    def require(self, wholly: bool = False) -> None:
        """Raises ImpossibleCapture unless the file, or what is read of a large one, is sound; waits for the check.

        WHOLLY has all of a large file checked, too.
        """
        self._verdict.result()
        if wholly and self._is_large:
            require_sound(self._path, self._named, self._abandoned)
        else:
            self._require_tables([table for table, numbers in self._numbers.copy().items() if not numbers.tell_all])

    def require_so_far(self) -> None:
        """Raises ImpossibleCapture where the file is known not to be sound, or rows come in an order that needs a look.

        Damaged pages may lead round and round: rows without end.
        """
        if self._verdict.done():
            self._verdict.result()
        self._require_tables([table for table, numbers in self._numbers.copy().items() if numbers.are_broken])

    def _require_tables(self, tables: list[str]) -> None:
        doubtful = set(tables) - self._checked
        if doubtful:
            require_sound(self._path, self._named, self._abandoned, doubtful)
            self._checked |= doubtful

    def close(self) -> None:
        """Ends a check that nobody waits for."""
        self._abandoned.set()
        self._pool.shutdown()

    def _check(self) -> None:
        if sys.platform == "linux":  # there, a thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        require_sound(self._path, self._named, self._abandoned, SMALL_TABLES if self._is_large else None)


def usable_cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RowNumbers:
    """Whether the rows of a table come numbered 1, 2, 3, ..., as nsys writes them, so that none before the last lacks.

    What stays unseen is a wrong count of cells on the last page of a table, which takes rows off its end.
    """

    def __init__(self) -> None:
        self._last = 0
        self.are_broken = False

    @property
    def tell_all(self) -> bool:
        """Whether there were rows, and all were numbered so."""
        return not self.are_broken and self._last > 0

    def look_at(self, numbers: pa.Array) -> None:
        """Takes the numbers of the next rows into account."""
        expected = np.arange(self._last + 1, self._last + 1 + len(numbers))
        self.are_broken = self.are_broken or not np.array_equal(numbers.to_numpy(zero_copy_only=False), expected)
        self._last += len(numbers)
