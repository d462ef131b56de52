"""Verdicts on differences between two times, by the spread between processes: steps of one process share clocks and
memory.

Every "faster", "slower" and "agrees" of the documents is decided here. If several processes timed a run, the spread
between them is measured. If one did, it is assumed from the share of the step in which the GPU waits: SPREADS, which
the H200 example supports (60 runs in 14 processes each, and 75 that several studies measured;
tests/profile_grid/test_evidence.py).
"""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.devices import IDLE_SHARE

FASTER, SLOWER, UNCLEAR = "faster", "slower", "unclear"
CONFIDENCE = 0.95
FALSE_RATE = 0.05  # of false verdicts among all verdicts
FEWEST_PROCESSES = 6  # of a side that is measured in several
HOST_BOUND_WAITING = 0.05  # part of a step in which the GPU waits, from which on the host decides how long it takes
SPREADS = {False: 0.01, True: 0.15}  # relative standard deviation between processes, by whether the host decides
RELEVANT_DIFFERENCE = 0.1  # the difference for which `processes_for` says how many processes a side would show it
POWER = 0.8
MIN_SPREAD = 1e-4  # relative; equal times of several processes differ by less than they are known
LAUNCH_BOUND_SHARE = IDLE_SHARE  # of a step in which the GPU idles; the line of the diagnosis, too


def assumed_spread(waiting_share: pd.Series) -> pd.Series:
    """The relative standard deviation between processes of runs with this waiting share; if unknown, that of
    launch-bound steps."""
    return (waiting_share.isna() | (waiting_share >= HOST_BOUND_WAITING)).map(SPREADS).astype("float64")


def spreads(processes: pd.Series, measured: pd.Series, waiting_share: pd.Series) -> pd.DataFrame:
    """`spread` (the relative standard deviation between processes) and `processes` of each time: measured where several
    processes timed it, assumed where one did."""
    number = processes.astype("float64").fillna(1).clip(lower=1)
    spread = measured.astype("float64").where(number > 1, assumed_spread(waiting_share))
    return pd.DataFrame({"spread": spread, "processes": number})


def error_of_ratio(*sides: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """(standard error of the logarithm of the ratio of two times, its degrees of freedom by Welch and Satterthwaite).
    The sides have columns as from `spreads` and the same index. A spread below TIMER counts as TIMER; an assumed one
    has infinite freedom."""
    variances = [side["spread"].clip(lower=MIN_SPREAD) ** 2 / side["processes"] for side in sides]
    variance = sum(variances)
    several = [(side["processes"] - 1).where(side["processes"] > 1, math.inf) for side in sides]
    unknown = sum(each**2 / freedom for each, freedom in zip(variances, several, strict=True))
    return variance**0.5, variance**2 / unknown


def ratio_verdicts(ratio: pd.Series, error: pd.Series, freedom: pd.Series | float = math.inf) -> pd.DataFrame:
    """`low` and `high` of each ratio's interval (base ÷ variant), its p-value `p`, `p_adjusted` for all these ratios
    (Benjamini and Hochberg), and its `verdict`.

    `error` is the standard error of the logarithm, with these degrees of `freedom`: infinite if it is assumed. The
    interval is not adjusted for the number of ratios.
    """
    from scipy.special import stdtr, stdtrit  # a sixth of a second, and most tables have nothing to compare

    freedom = pd.Series(freedom, index=ratio.index, dtype="float64").clip(upper=1e9)
    distance = np.log(ratio.astype("float64")).abs()
    p_values = 2 * stdtr(freedom, -distance / error)
    reach = np.exp(stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)
    p_adjusted = pd.Series(adjusted_p_values(p_values.to_numpy("float64")), index=ratio.index)
    words = (ratio > 1).map({True: FASTER, False: SLOWER}).where(p_adjusted < FALSE_RATE, UNCLEAR).astype("object")
    return pd.DataFrame(
        {
            "low": ratio / reach, "high": ratio * reach, "p": p_values, "p_adjusted": p_adjusted,
            "verdict": words.where(p_values.notna(), None),
        }
    )  # fmt: skip


def adjusted_p_values(p_values: np.ndarray) -> np.ndarray:
    """The p-values after Benjamini and Hochberg: below RATE, at most a share RATE of the verdicts is false. NaN stays
    NaN."""
    result, is_known = np.full(len(p_values), np.nan), np.flatnonzero(~np.isnan(p_values))
    order = is_known[np.argsort(p_values[is_known])]
    scaled = p_values[order] * len(order) / np.arange(1, len(order) + 1)
    result[order] = np.minimum(1, np.minimum.accumulate(scaled[::-1])[::-1])
    return result


def needed_processes(spread: float, difference: float = RELEVANT_DIFFERENCE) -> int:
    """The processes per side that show this relative difference with probability POWER, given the spread between
    processes."""
    quantile = NormalDist().inv_cdf
    reach = (quantile((1 + CONFIDENCE) / 2) + quantile(POWER)) * spread / math.log1p(difference)
    return max(FEWEST_PROCESSES, math.ceil(2 * reach**2))


def pooled_time(times: pd.Series, processes: pd.Series, measured: pd.Series) -> tuple[float, float, float]:
    """(median, relative standard deviation between processes, number of processes) of times of the same work. Each
    time comes from `processes` processes, with the `measured` spread between them."""
    numbers, logarithms = processes.astype("float64").fillna(1), np.log(times.astype("float64"))
    total = numbers.sum()
    mean = (numbers * logarithms).sum() / total if total else math.nan
    squares = (numbers - 1) * measured.astype("float64").fillna(0.0) ** 2 + numbers * (logarithms - mean) ** 2
    return float(times.median()), float((squares.sum() / (total - 1)) ** 0.5) if total > 1 else math.nan, float(total)


def ratios_of_processes(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ratio before ÷ after, standard error of its logarithm, degrees of freedom) of each cell, from the median steps
    of the processes of both sides (Welch's test). Arrays have axes (cell, process, step)."""
    sides = []
    for times in (before, after):
        number, spread = times.shape[1], np.log(np.median(times, axis=2)).std(axis=1, ddof=1)
        sides.append(spreads(*(pd.Series(each, range(len(times))) for each in (number, spread, math.nan))))
    error, freedom = error_of_ratio(*sides)
    return typical_ms(before) / typical_ms(after), error.to_numpy(), freedom.to_numpy()


def typical_ms(times: np.ndarray) -> np.ndarray:
    """The geometric mean over processes of the median over steps, the last two axes."""
    return np.exp(np.log(np.median(times, axis=-1)).mean(axis=-1))


def fastest(times: pd.Series, between: pd.DataFrame) -> object | None:
    """The label of the shortest of these times, if it is faster than each other one, else None. `between` has columns
    as from `spreads` and the same index."""
    best = times.idxmin()
    others = times.drop(best)
    error = error_of_ratio(between.drop(best), between.loc[[best] * len(others)].set_index(others.index))
    return best if (ratio_verdicts(others / times[best], *error)["verdict"] == FASTER).all() else None


def is_launch_bound(idle_share: pd.Series, launch_us: pd.Series, kernel_us: pd.Series) -> pd.Series:
    """Whether the GPU idles for LAUNCH_BOUND_SHARE of a step and launching a kernel takes longer than running it."""
    return (idle_share >= LAUNCH_BOUND_SHARE) & (launch_us > kernel_us)
