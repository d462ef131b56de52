"""Ranges that overlap without nesting (domains side by side, start/end ranges), cut into pieces that nest.

While a range is open, the ranges around it change only when one that was opened before it ends. Cut at those times,
each piece has the same ranges around it from its start to its end, and lies within one piece of each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.limits import require_pairs


@dataclass(frozen=True)
class Pieces:
    """Pieces of ranges in opening order: by start, then by range. Integer nanoseconds."""

    range: np.ndarray  # index of the range
    start_ns: np.ndarray
    end_ns: np.ndarray


def pieces_that_nest(start_ns: np.ndarray, end_ns: np.ndarray) -> Pieces:
    """The pieces of these ranges, which come in opening order; a range that nothing cuts is one piece."""
    cut, cuts_ns = _cuts(start_ns, end_ns)
    number = np.arange(len(start_ns))
    of_range = np.repeat(number, np.bincount(cut, minlength=len(number)) + 1)
    is_first = np.append(True, of_range[1:] != of_range[:-1])
    starts_ns, ends_ns = np.empty(len(of_range), np.int64), np.empty(len(of_range), np.int64)
    starts_ns[is_first], starts_ns[~is_first] = start_ns, cuts_ns
    is_last = np.append(is_first[1:], True)
    ends_ns[is_last], ends_ns[~is_last] = end_ns, cuts_ns
    order = np.argsort(starts_ns, kind="stable")
    return Pieces(of_range[order], starts_ns[order], ends_ns[order])


def _cuts(start_ns: np.ndarray, end_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(range, time) for every time at which a range is cut, by range and then by time."""
    by_end = np.argsort(end_ns, kind="stable")
    keys, crossings = [], 0
    for later, place in _crossings(start_ns, end_ns, by_end):
        keys.append(later * len(by_end) + place)
        crossings += len(later)
        require_pairs(crossings, "pairs of ranges of one thread that overlap without nesting")
    keys = np.sort(np.concatenate(keys))
    cut, time_ns = keys // len(by_end), end_ns[by_end[keys % len(by_end)]]
    is_new = np.append(True, (cut[1:] != cut[:-1]) | (time_ns[1:] != time_ns[:-1]))[: len(cut)]
    return cut[is_new], time_ns[is_new]


def _crossings(start_ns: np.ndarray, end_ns: np.ndarray, by_end: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(later range, where BY_END has an earlier one that ends within it), for all such two, some at a time.

    The ranges that end within one stand side by side in BY_END. Those opened earlier are found by the smallest number
    there: where it is small enough, the same is asked of what stands on either side of it.
    """
    place_of = np.empty_like(by_end)
    place_of[by_end] = np.arange(len(by_end))
    smallest = _SmallestOfSpan(by_end)
    later, ends_ns = np.arange(len(start_ns)), end_ns[by_end]
    first, last = np.searchsorted(ends_ns, start_ns, "right"), np.searchsorted(ends_ns, end_ns)
    while len(later):
        later, first, last = (values[first < last] for values in (later, first, last))
        earlier = smallest(first, last)
        later, first, last, earlier = (values[earlier < later] for values in (later, first, last, earlier))
        place = place_of[earlier]
        yield later, place
        later, first, last = np.append(later, later), np.append(first, place + 1), np.append(place, last)


class _SmallestOfSpan:
    """The smallest value of any span of an array, from a table of the smallest of every span of 1, 2, 4, 8, ... ."""

    def __init__(self, values: np.ndarray):
        rows = [values.astype(np.int32)]
        while 2 ** len(rows) <= len(values):
            half = 2 ** (len(rows) - 1)
            row = rows[-1].copy()
            np.minimum(row[:-half], rows[-1][half:], out=row[:-half])
            rows.append(row)
        self._table = np.stack(rows)

    def __call__(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The smallest of values[first:last], for spans that are not empty."""
        row = np.frexp(last - first)[1] - 1  # the largest power of two that fits into the span
        return np.minimum(self._table[row, first], self._table[row, last - (1 << row)])
