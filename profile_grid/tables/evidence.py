"""Verdicts on differences between two times, by the spread between processes, since steps of one process share clocks
and memory.

Every "faster" and "slower" of the documents is decided here. If several processes timed a run, the spread between them
is measured. If one did, it is assumed from the share of the step in which the GPU waits. The H200 example
supports these values (60 runs in 14 processes each: tests/profile_grid/test_evidence.py).
"""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.devices import IDLE_SHARE

FASTER, SLOWER, UNCLEAR = "faster", "slower", "unclear"
CONFIDENCE = 0.95
FALSE_RATE = 0.05  # largest expected share of wrong verdicts
FEWEST_PROCESSES = 6  # per side, for a comparison of measured spreads
HOST_BOUND_WAITING = 0.05  # if the GPU waits for this share of a step or more, the host determines the step's time
# Relative standard deviations between processes, assumed of steps whose time the GPU or the host determines.
GPU_BOUND_SPREAD, HOST_BOUND_SPREAD = 0.01, 0.15
RELEVANT_DIFFERENCE = 0.1  # relative; documents say how many processes would show it
POWER = 0.8  # probability with which that many processes show it
MIN_SPREAD = 1e-4  # relative; measured times may be equal only because of the timer's resolution
LAUNCH_BOUND_SHARE = IDLE_SHARE  # of a step in which the GPU idles; the same limit as in the diagnosis


def assumed_spread(waiting_share: pd.Series) -> pd.Series:
    """The relative standard deviation between processes of runs with this waiting share; if unknown, that of
    steps whose time the host determines."""
    is_host_bound = waiting_share.isna() | (waiting_share >= HOST_BOUND_WAITING)
    return is_host_bound.map({False: GPU_BOUND_SPREAD, True: HOST_BOUND_SPREAD}).astype("float64")


def spreads(processes: pd.Series, measured_spread: pd.Series, waiting_share: pd.Series) -> pd.DataFrame:
    """`spread` (the relative standard deviation between processes) and number of `processes` of each time. The spread
    is the measured one if several processes timed it, else the assumed one."""
    counts = processes.astype("float64").fillna(1).clip(lower=1)
    spread = measured_spread.astype("float64").where(counts > 1, assumed_spread(waiting_share))
    return pd.DataFrame({"spread": spread, "processes": counts})


def error_of_ratio(*sides: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """(standard error of the logarithm of the ratio of two times, its degrees of freedom by Welch and Satterthwaite).
    The two sides have the columns of `spreads` and the same index. A spread counts as MIN_SPREAD or more; an assumed
    one has infinitely many degrees of freedom."""
    variances = [side["spread"].clip(lower=MIN_SPREAD) ** 2 / side["processes"] for side in sides]
    freedoms = [(side["processes"] - 1).where(side["processes"] > 1, math.inf) for side in sides]
    total = sum(variances)
    terms = [variance**2 / freedom for variance, freedom in zip(variances, freedoms, strict=True)]
    return total**0.5, total**2 / sum(terms)


def ratio_verdicts(ratio: pd.Series, error: pd.Series, freedom: pd.Series | float = math.inf) -> pd.DataFrame:
    """A row per ratio (time of the base ÷ time of the variant): the ends `low` and `high` of its interval, its p-value
    `p`, `p_adjusted` for all these ratios (Benjamini and Hochberg), and its `verdict`, None if its error is unknown.

    `error` is the standard error of the ratio's logarithm, with these degrees of `freedom`: infinitely many if it is
    assumed. The interval is not adjusted for the number of ratios.
    """
    from scipy.special import stdtr, stdtrit  # imported in 0.15 s, and most tables have nothing to compare

    freedom = pd.Series(freedom, index=ratio.index, dtype="float64").clip(upper=1e9)  # as good as infinite
    distance = np.log(ratio.astype("float64")).abs()
    p_values = 2 * stdtr(freedom, -distance / error)
    factor = np.exp(stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)
    p_adjusted = pd.Series(adjusted_p_values(p_values.to_numpy("float64")), index=ratio.index)
    verdicts = (ratio > 1).map({True: FASTER, False: SLOWER}).where(p_adjusted < FALSE_RATE, UNCLEAR).astype("object")
    return pd.DataFrame(
        {
            "low": ratio / factor, "high": ratio * factor, "p": p_values, "p_adjusted": p_adjusted,
            "verdict": verdicts.where(p_values.notna(), None),
        }
    )  # fmt: skip


def adjusted_p_values(p_values: np.ndarray) -> np.ndarray:
    """The p-values adjusted by Benjamini and Hochberg: of the verdicts with an adjusted value below FALSE_RATE, at
    most a share of FALSE_RATE is expected to be wrong. NaN stays NaN."""
    result = np.full(len(p_values), np.nan)
    order = np.argsort(p_values)[: np.count_nonzero(~np.isnan(p_values))]  # NaN is sorted last
    scaled = p_values[order] * len(order) / np.arange(1, len(order) + 1)
    result[order] = np.minimum(1, np.minimum.accumulate(scaled[::-1])[::-1])
    return result


def needed_processes(spread: float) -> int:
    """The processes per side with which a single comparison shows RELEVANT_DIFFERENCE with probability POWER, given the
    spread between processes; at least FEWEST_PROCESSES."""
    quantile = NormalDist().inv_cdf
    reach = (quantile((1 + CONFIDENCE) / 2) + quantile(POWER)) * spread / math.log1p(RELEVANT_DIFFERENCE)
    return max(FEWEST_PROCESSES, math.ceil(2 * reach**2))


def pooled_time(times: pd.Series, processes: pd.Series, process_spread: pd.Series) -> tuple[float, float, float]:
    """(median, relative standard deviation between processes, number of processes) of times of the same work. Each time
    is the mean of as many processes as `processes` says, and `process_spread` is measured between these. With one
    process in all, the standard deviation is NaN."""
    counts, logarithms = processes.astype("float64").fillna(1), np.log(times.astype("float64"))
    total = counts.sum()
    mean = (counts * logarithms).sum() / total if total else math.nan
    squares = (counts - 1) * process_spread.astype("float64").fillna(0.0) ** 2 + counts * (logarithms - mean) ** 2
    spread = (squares.sum() / (total - 1)) ** 0.5 if total > 1 else math.nan
    return float(times.median()), float(spread), float(total)


def ratios_of_processes(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ratio before ÷ after, standard error of its logarithm, degrees of freedom) of each cell, from the median steps
    of several processes per side (Welch's test). Arrays have axes (cell, process, step)."""
    sides = []
    for times in (before, after):
        spread = np.log(np.median(times, axis=2)).std(axis=1, ddof=1)
        sides.append(pd.DataFrame({"spread": spread, "processes": float(times.shape[1])}))
    error, freedom = error_of_ratio(*sides)
    return typical_ms(before) / typical_ms(after), error.to_numpy(), freedom.to_numpy()


def typical_ms(times: np.ndarray) -> np.ndarray:
    """The geometric mean over processes of the median over steps, the last two axes."""
    return np.exp(np.log(np.median(times, axis=-1)).mean(axis=-1))


def fastest(times: pd.Series, process_spreads: pd.DataFrame) -> object | None:
    """The label of the shortest of these times, if its verdict against each of the others is FASTER; else, and without
    others, None.
    `process_spreads` has the columns of `spreads` and the same index."""
    best = times.idxmin()
    others = times.drop(best)
    if others.empty:
        return None
    best_spreads = process_spreads.loc[[best] * len(others)].set_index(others.index)
    error, freedom = error_of_ratio(process_spreads.drop(best), best_spreads)
    return best if (ratio_verdicts(others / times[best], error, freedom)["verdict"] == FASTER).all() else None


def is_launch_bound(idle_share: pd.Series, launch_us: pd.Series, kernel_us: pd.Series) -> pd.Series:
    """Whether the GPU idles for LAUNCH_BOUND_SHARE of a step and launching a kernel takes longer than running it."""
    return (idle_share >= LAUNCH_BOUND_SHARE) & (launch_us > kernel_us)
