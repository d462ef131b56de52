"""Integer keys numbered without gaps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kernel_tables.attribution.blocks import each_block, made_by_block


def compact(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, ascending, and the index of each key among them as int32; nothing long is sorted."""
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int32)
    low, high = int(keys.min()), int(keys.max())
    if high - low > len(keys) + 1024:
        return _hashed(keys)
    if low == high:
        return np.array([low]), np.zeros(len(keys), np.int32)
    present = np.zeros(high - low + 1, bool)

    def mark(block: slice) -> None:
        present[keys[block] - low] = True

    each_block(mark, len(keys))
    distinct = np.flatnonzero(present)
    index = _index_of(distinct, len(present))
    return distinct + low, made_by_block(lambda block: index[keys[block] - low], len(keys), np.int32)


def grouped(groups: np.ndarray, count: int) -> list[np.ndarray]:
    """The positions of each of the groups 0 to COUNT - 1 in GROUPS, ascending; a negative number is of no group."""
    if count < 8:
        return [np.flatnonzero(groups == group) for group in range(count)]
    small = (groups + 1).astype(np.min_scalar_type(count))
    order = np.argsort(small, kind="stable")  # a radix sort where the integers are small enough
    return np.split(order, np.cumsum(np.bincount(small, minlength=count + 1))[:-1])[1:]


def matched(one: np.ndarray, other: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(its positions in ONE, its positions in OTHER), each ascending, for every distinct key of ONE."""
    keys, code = compact(np.concatenate([one, other]))
    in_one, in_other = grouped(code[: len(one)], len(keys)), grouped(code[len(one) :], len(keys))
    return [pair for pair in zip(in_one, in_other, strict=True) if len(pair[0])]


def _hashed(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    encoded = pa.array(keys).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    order = np.argsort(distinct)
    index, indices = _index_of(order, len(order)), encoded.indices.to_numpy()
    return distinct[order], made_by_block(lambda block: index[indices[block]], len(keys), np.int32)


def _index_of(values: np.ndarray, size: int) -> np.ndarray:
    """The index in VALUES of each of the numbers up to SIZE that stand there."""
    index = np.empty(size, np.int32)
    index[values] = np.arange(len(values), dtype=np.int32)
    return index
