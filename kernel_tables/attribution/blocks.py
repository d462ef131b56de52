"""Long arrays a block at a time: temporary arrays stay small, so that their memory is used again, and two cores share
the work. Memory that is touched for the first time costs more than what is computed in it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROWS = 1 << 18
THREADS = 2  # as many as read


def blocks(rows: int) -> list[slice]:
    """Slices of so many rows, in their order."""
    return [slice(first, min(first + ROWS, rows)) for first in range(0, rows, ROWS)]


def each_block(use: Callable[[slice], None], rows: int) -> None:
    """Calls USE for every block, several at once; numpy lets the threads run side by side."""
    if rows <= ROWS:
        use(slice(0, rows))
        return
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(use, blocks(rows)):
            pass  # an exception comes out here


def made_by_block(of_block: Callable[[slice], np.ndarray], rows: int, dtype: type) -> np.ndarray:
    """The array whose blocks OF_BLOCK gives."""
    made = np.empty(rows, dtype)

    def fill(block: slice) -> None:
        made[block] = of_block(block)

    each_block(fill, rows)
    return made
