"""Whether something is faster than before: the only place that decides it, from the spread that was measured.

Welch's t-test compares the logarithms of two samples; all tests of one table share a false discovery rate. GPU time is
judged by captured steps. Another process of the same work has the same GPU time within 1.2 % (73 runs on H200s), so a
difference below 2 % decides nothing. Wall time also depends on the host, by up to 125 % there: only means of several
processes judge it, never a spread that was assumed, and a difference below 1 % decides nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernel_tables.output import percent

if TYPE_CHECKING:
    import pandas as pd

FASTER, SLOWER, UNKNOWN = "faster", "slower", "cannot be told"
LEVEL = 0.01  # so many of the verdicts of one table may be wrong: a check of every change alarms falsely once in 200
PROCESSES = 6  # on each side of a comparison, if nothing else is asked for
FAIL_ON = r"(nothing|slower|faster|changed)( \d+(\.\d+)? ?%)?"


def judge(times: pd.DataFrame, pairs: pd.DataFrame, sample: str, least: float = 0.01) -> pd.DataFrame:
    """The pairs (columns `before` and `after`, which are in the index of `times`) with further columns.

    `times` has the mean, its `spread` (the standard deviation of the logarithms of the samples, which is the relative
    one) and `n`, the number of samples. `sample` names one, `least` is the smallest relative difference that decides.
    The columns: `before_ms`, `after_ms`, `ratio` (below 1 is faster), its interval `low` to `high` (empty if no spread
    was measured), `p`, `verdict`, `used`, which says from what, and `findable`, the relative difference that so many
    samples with this spread find in 8 of 10 comparisons.
    """
    import numpy as np
    from scipy import stats

    before, after = (times.reindex(pairs[name]).reset_index(drop=True) for name in ("before", "after"))
    table = pairs.reset_index(drop=True).assign(before_ms=before["mean"], after_ms=after["mean"])
    table["ratio"] = after["mean"] / before["mean"]
    shift = np.log(table["ratio"])
    # a side with one sample has no spread; samples that are equal to the last digit give no 0 ÷ 0
    parts = [(side["spread"].where(side["n"] >= 2) ** 2 / side["n"]).clip(lower=1e-18) for side in (before, after)]
    squares = sum(part**2 / (side["n"] - 1).clip(lower=1) for part, side in zip(parts, (before, after), strict=True))
    error, freedom = (parts[0] + parts[1]) ** 0.5, (parts[0] + parts[1]) ** 2 / squares
    margin = stats.t.ppf(0.975, freedom) * error  # of an interval with 95 % confidence
    table["low"], table["high"] = np.exp(shift - margin), np.exp(shift + margin)
    found = (stats.t.ppf(1 - LEVEL / 2, freedom) + stats.t.ppf(0.8, freedom)) * error
    table["findable"] = np.expm1(found).clip(lower=least)
    table["p"] = 2 * stats.t.sf(np.abs(shift) / error, freedom)
    tested = table["p"].notna()
    adjusted = table["p"].copy()  # by Benjamini and Hochberg
    if tested.any():
        adjusted[tested] = stats.false_discovery_control(table["p"][tested])
    decided = (adjusted <= LEVEL) & (np.abs(shift) > np.log1p(least))
    table["verdict"] = np.where(decided, np.where(shift < 0, FASTER, SLOWER), UNKNOWN)
    counts = zip(before["n"].fillna(0).astype(int), after["n"].fillna(0).astype(int), strict=True)
    plural = "processes" if sample == "process" else f"{sample}s"
    table["used"] = [
        f"{first} and {second} {plural}" if first != second else f"{first} {sample if first == 1 else plural} each"
        for first, second in counts
    ]
    return table.set_index(pairs.index)


def judge_samples(samples: pd.Series, pairs: pd.DataFrame, sample: str, least: float = 0.01) -> pd.DataFrame:
    """The pairs with a verdict, as of judge, from samples in ms, each with the name of its side in the index."""
    import numpy as np
    import pandas as pd

    logs = np.log(samples.astype("float64")).groupby(level=0)
    times = pd.DataFrame({"mean": np.exp(logs.mean()), "spread": logs.std(), "n": logs.size()})
    return judge(times, pairs, sample, least)


def sentence(row: pd.Series) -> str:
    """The verdict on a pair in words: "2.7 % slower (2.3 % to 3.1 %)". One that cannot be told may still be unlikely to
    be none: then that is said, too."""
    change, ends = abs(row["ratio"] - 1), sorted((abs(row["low"] - 1), abs(row["high"] - 1)))
    interval = f"{percent(ends[0])} to {percent(ends[1])}"
    if row["verdict"] != UNKNOWN:
        return f"{percent(change)} {row['verdict']} ({interval})"
    if row["low"] > 1 or row["high"] < 1:
        return f"{UNKNOWN}, perhaps {FASTER if row['high'] < 1 else SLOWER} ({interval})"
    interval = f" ({100 * row['low'] - 100:+.1f} % to {100 * row['high'] - 100:+.1f} %)"
    return UNKNOWN + (interval if row["low"] > 0 and row["high"] < 10 else "")  # a wider one says nothing


def findable_sentence(findable: float, processes: int) -> str:
    """What so many processes a side find, in words, and how many find half of it; `findable` as of judge."""
    from scipy import stats

    if findable > 1:
        return f"{processes} processes each differ so much that they find no change below 100 %: take more"

    def error(n: int) -> float:  # times the spread
        return (stats.t.ppf(1 - LEVEL / 2, 2 * n - 2) + stats.t.ppf(0.8, 2 * n - 2)) * n**-0.5

    more = next(n for n in range(2, 10**6) if error(n) <= error(max(processes, 2)) / 2)
    half = f", about {more} one of {percent(findable / 2)}" if findable > 0.02 else ""
    return f"{processes} processes each find a change of {percent(findable)} in 8 of 10 comparisons{half}"


def fails(table: pd.DataFrame, fail_on: str) -> pd.Series:
    """Which rows have the verdict, and at least the change, that a text as of FAIL_ON names, such as "slower 2%"."""
    match = re.fullmatch(FAIL_ON, fail_on)
    verdicts = {"slower": (SLOWER,), "faster": (FASTER,), "changed": (SLOWER, FASTER)}.get(match[1], ())
    least = float(match[2].rstrip(" %")) / 100 if match[2] else 0.0
    return table["verdict"].isin(verdicts) & ((table["ratio"] - 1).abs() >= least)
