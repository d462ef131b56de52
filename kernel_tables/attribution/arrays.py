"""Long integer arrays: processed by blocks, and their keys numbered without gaps.

Temporary arrays of a block stay small, so that their memory is reused, and several cores share the work. Touching new
memory costs more than the computation.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from kernel_tables.processors import processor_count

BLOCK_LENGTH = 1 << 16
MIN_NARROW, MAX_NARROW = -(1 << 30), (1 << 30) - 1  # the sum of two fits into 32 bits, too
MAX_GAPS = 1024  # missing keys in an array by key
WORKERS = min(4, max(2, processor_count()))


def blocks(count: int) -> list[slice]:
    """The rows 0 to `count` - 1 as slices of at most BLOCK_LENGTH, in order."""
    return [slice(first, min(first + BLOCK_LENGTH, count)) for first in range(0, count, BLOCK_LENGTH)]


def each_block(use: Callable[[slice], None], count: int) -> None:
    """Calls `use` for every block of `count` rows, several at once, since numpy releases the interpreter's lock."""
    if count <= BLOCK_LENGTH:
        use(slice(0, count))
        return
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(use, blocks(count)):
            pass  # raises the exception of a call


def map_blocks(values_of: Callable[[slice], np.ndarray], count: int, dtype: type) -> np.ndarray:
    """The array of `count` values, whose blocks `values_of` returns."""
    values = np.empty(count, dtype)

    def fill(block: slice) -> None:
        values[block] = values_of(block)

    each_block(fill, count)
    return values


def map_narrow_blocks(values_of: Callable[[slice], np.ndarray], count: int) -> np.ndarray:
    """As map_blocks; of 32 bits if all values are between MIN_NARROW and MAX_NARROW, else of 64."""
    values, wide_blocks = np.empty(count, np.int32), []

    def fill(block: slice) -> None:
        block_values = values_of(block)
        if block_values.min(initial=0) < MIN_NARROW or block_values.max(initial=0) > MAX_NARROW:
            wide_blocks.append(block)
        else:
            values[block] = block_values

    each_block(fill, count)
    return map_blocks(values_of, count, np.int64) if wide_blocks else values


def compact(values: np.ndarray) -> np.ndarray:
    """The same integers in less memory: none if all are equal, half if all are between MIN_NARROW and MAX_NARROW."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.broadcast_to(values[0], values.shape)
    is_narrow = low >= MIN_NARROW and high <= MAX_NARROW
    return values.astype(np.int32, copy=False) if is_narrow else values


def index_type(count: int) -> np.dtype:
    """The smallest type of integers for an index of `count` values, or -1 for none."""
    return np.min_scalar_type(-count - 1)  # of a negative number, a signed type


def concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    """The arrays one after the other; takes no memory if only one of them has entries, or if all of them repeat the
    same value without memory, as those of `compact` do."""
    filled = [array for array in arrays if len(array)]
    if len(filled) == 1:
        return filled[0]
    if filled and all(array.strides == (0,) and array[0] == filled[0][0] for array in filled):
        return np.broadcast_to(filled[0][0], sum(map(len, filled)))
    return np.concatenate(arrays)


def factorize(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, ascending, and the index of each key among them as int32; sorts only the distinct keys."""
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int32)
    low, high = int(keys.min()), int(keys.max())
    if low == high:
        return np.array([low]), np.zeros(len(keys), np.int32)
    if high - low > len(keys) + MAX_GAPS:  # an array by key would be too long
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


def positions_by_group(groups: np.ndarray, count: int) -> list[np.ndarray]:
    """The positions of each of the groups 0 to `count` - 1 in `groups`, ascending; -1 is in no group."""
    if count < 8:  # faster than sorting
        return [np.flatnonzero(groups == group) for group in range(count)]
    from_one = (groups + 1).astype(np.min_scalar_type(count))  # 0 for no group
    order = np.argsort(from_one, kind="stable")  # a radix sort if the integers are small enough
    return np.split(order, np.cumsum(np.bincount(from_one, minlength=count + 1))[:-1])[1:]


def sums_by_group(groups: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """The exact integer sum of the values of each of the groups 0 to `count` - 1."""
    sums = np.zeros(count, np.int64)
    for block in blocks(len(groups)):
        np.add.at(sums, groups[block].astype(np.intp), values[block].astype(np.int64, copy=False))
    return sums


def positions_by_key(keys: np.ndarray, other_keys: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """For every distinct key of `keys`, its positions in `keys` and its positions in `other_keys`, each ascending."""
    distinct, index = factorize(np.concatenate([keys, other_keys]))
    positions = positions_by_group(index[: len(keys)], len(distinct))
    other_positions = positions_by_group(index[len(keys) :], len(distinct))
    pairs = zip(positions, other_positions, strict=True)
    return [(in_keys, in_other_keys) for in_keys, in_other_keys in pairs if len(in_keys)]


def _inverse(values: np.ndarray, size: int) -> np.ndarray:
    """The position in `values` of each number below `size`; undefined for numbers that are not in `values`."""
    position = np.empty(size, np.int32)
    position[values] = np.arange(len(values), dtype=np.int32)
    return position
