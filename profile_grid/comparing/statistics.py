"""Whether two sets of processes differ in time. The unit is the process: its steps share clocks and memory.

Times are the median step of each process. The exact Mann-Whitney U test compares the sides; the ratio of their medians
has an interval from resampling processes and then steps; Benjamini-Hochberg adjusts for many cells. Arrays of a side
have a row per process and a column per step.
"""

from __future__ import annotations

from math import comb

import numpy as np
from scipy import stats

FEWEST_PROCESSES = 6  # of a side
RATE = 0.05  # of false findings among all findings
CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 0


def p_value(before: np.ndarray, after: np.ndarray) -> float:
    """The probability of such a difference between the medians of processes if nothing differs; two-sided, exact."""
    return float(stats.mannwhitneyu(np.median(before, axis=1), np.median(after, axis=1), method="exact").pvalue)


def fewest_for_one(cells: int) -> int:
    """The fewest processes per side that can detect a change in one of this number of cells: their smallest p, 2 of all
    ways to assign them to two sides, must be below RATE after the adjustment."""
    processes = FEWEST_PROCESSES
    while 2 * cells / comb(2 * processes, processes) >= RATE:
        processes += 1
    return processes


def median_ms(times: np.ndarray) -> float:
    """The median over processes of the median over steps."""
    return float(np.median(np.median(times, axis=1)))


def ratio_interval(before: np.ndarray, after: np.ndarray, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The interval, with CONFIDENCE, of the ratio after / before."""
    random = np.random.default_rng(SEED)
    ratios = _resampled(after, random, resamples) / _resampled(before, random, resamples)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, (tail, 1 - tail))
    return float(low), float(high)


def adjusted(p_values: np.ndarray) -> np.ndarray:
    """The p-values after Benjamini and Hochberg: below RATE, at most RATE of the findings are false."""
    return stats.false_discovery_control(p_values) if len(p_values) else p_values


def _resampled(times: np.ndarray, random: np.random.Generator, resamples: int) -> np.ndarray:
    """The median of each resample: processes with replacement, then steps of each with replacement."""
    processes, steps = times.shape
    process = random.integers(0, processes, (resamples, processes, 1))
    step = random.integers(0, steps, (resamples, processes, steps))
    return np.median(np.median(times[process, step], axis=2), axis=1)
