"""The largest number that fits, found with few questions, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable

FITTED = ("context_length", "batch_size")  # the dimensions whose largest value can be measured


def file_name(run: str, dimension: str) -> str:
    """The file, below results/largest, that holds the largest value of a dimension with which a run fits."""
    return f"{run}_{dimension}.json"


def largest_fitting(fits: Callable[[int], bool], start: int) -> int:
    """The largest whole number that fits, where all below one that fits do too; 0 where 1 does not. `start` is tried
    first, then steps that double, so that few are tried where it is near."""
    step, low, high = 1, 0, start
    if fits(start):
        low, high = start, start + 1
        while fits(high):
            step *= 2
            low, high = high, high + step
    else:
        while high - step > 0 and not fits(high - step):
            high, step = high - step, 2 * step
        low = max(high - step, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
