"""Long integer arrays: processed by blocks, and their keys numbered without gaps.

Temporary arrays of a block stay small, so that their memory is reused, and several cores share the work. Touching new
memory costs more than the computation.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from kernel_tables.processors import processors

ROWS = 1 << 16  # of a block
NARROW_VALUES = -(1 << 30), (1 << 30) - 1  # the sum of two fits into 32 bits, too
THREADS = min(4, max(2, processors()))


def blocks(rows: int) -> list[slice]:
    """Slices of at most ROWS rows, in order."""
    return [slice(first, min(first + ROWS, rows)) for first in range(0, rows, ROWS)]


def each_block(use: Callable[[slice], None], rows: int) -> None:
    """Calls `use` for every block, several at once; numpy releases the interpreter."""
    if rows <= ROWS:
        use(slice(0, rows))
        return
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(use, blocks(rows)):
            pass  # an exception comes out here


def map_blocks(values_of: Callable[[slice], np.ndarray], rows: int, dtype: type) -> np.ndarray:
    """The array with this number of rows, whose blocks `values_of` returns."""
    values = np.empty(rows, dtype)

    def fill(block: slice) -> None:
        values[block] = values_of(block)

    each_block(fill, rows)
    return values


def map_narrow_blocks(values_of: Callable[[slice], np.ndarray], rows: int) -> np.ndarray:
    """As map_blocks; of 32 bits if all values are of NARROW_VALUES, else of 64."""
    values, too_wide = np.empty(rows, np.int32), []

    def fill(block: slice) -> None:
        of_block = values_of(block)
        if of_block.min(initial=0) < NARROW_VALUES[0] or of_block.max(initial=0) > NARROW_VALUES[1]:
            too_wide.append(block)
        else:
            values[block] = of_block

    each_block(fill, rows)
    return map_blocks(values_of, rows, np.int64) if too_wide else values


def compact(values: np.ndarray) -> np.ndarray:
    """The same integers in less memory: none if all are equal, half of it if all are of NARROW_VALUES."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.broadcast_to(values[0], values.shape)
    fits = NARROW_VALUES[0] <= low and high <= NARROW_VALUES[1]
    return values.astype(np.int32, copy=False) if fits else values


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    """The arrays one after the other, without memory if only one of them has entries, or all entries are one."""
    filled = [array for array in arrays if len(array)]
    if len(filled) == 1:
        return filled[0]
    if filled and all(array.strides == (0,) and array[0] == filled[0][0] for array in filled):
        return np.broadcast_to(filled[0][0], sum(map(len, filled)))
    return np.concatenate(arrays)


def factorize(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, ascending, and the index of each key among them as int32; nothing long is sorted."""
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int32)
    low, high = int(keys.min()), int(keys.max())
    if low == high:
        return np.array([low]), np.zeros(len(keys), np.int32)
    if high - low > len(keys) + 1024:  # too spread for an array by key
        encoded = pa.array(keys).dictionary_encode()
        values, codes = encoded.dictionary.to_numpy(), encoded.indices.to_numpy()
        order = np.argsort(values)
        index = _inverse(order, len(order))
        return values[order], map_blocks(lambda block: index[codes[block]], len(keys), np.int32)
    present = np.zeros(high - low + 1, bool)

    def mark(block: slice) -> None:
        present[keys[block] - low] = True

    each_block(mark, len(keys))
    distinct = np.flatnonzero(present)
    index = _inverse(distinct, len(present))
    return distinct + low, map_blocks(lambda block: index[keys[block] - low], len(keys), np.int32)


def grouped(groups: np.ndarray, count: int) -> list[np.ndarray]:
    """The positions of each of the groups 0 to `count` - 1 in `groups`, ascending; a negative number is in no group."""
    if count < 8:
        return [np.flatnonzero(groups == group) for group in range(count)]
    small = (groups + 1).astype(np.min_scalar_type(count))
    order = np.argsort(small, kind="stable")  # a radix sort where the integers are small enough
    return np.split(order, np.cumsum(np.bincount(small, minlength=count + 1))[:-1])[1:]


def sums_by_group(groups: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """The exact integer sum of the values of each of the groups 0 to `count` - 1."""
    sums = np.zeros(count, np.int64)
    for block in blocks(len(groups)):
        np.add.at(sums, groups[block].astype(np.intp), values[block].astype(np.int64, copy=False))
    return sums


def matched(keys: np.ndarray, other_keys: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every distinct key of `keys`, its positions in `keys` and its positions in `other_keys`, each ascending."""
    distinct, code = factorize(np.concatenate([keys, other_keys]))
    here, other_rows = grouped(code[: len(keys)], len(distinct)), grouped(code[len(keys) :], len(distinct))
    return [pair for pair in zip(here, other_rows, strict=True) if len(pair[0])]


def _inverse(values: np.ndarray, size: int) -> np.ndarray:
    """The position in `values` of each number below `size`; undefined for numbers that are not there."""
    position = np.empty(size, np.int32)
    position[values] = np.arange(len(values), dtype=np.int32)
    return position
