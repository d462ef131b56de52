"""Whether runs are faster than others: the only place that decides it, from the spread that was measured.

Welch's t-test compares the logarithms of two samples; all tests of one table share a false discovery rate. GPU time is
judged by captured steps. Another process of the same work has the same GPU time within 1.2 % (73 runs on H200s), so a
difference below 2 % decides nothing. Wall time also depends on the host, by up to 125 % there: only means of several
processes judge it (`timing: {processes: N}`), and never a spread that was assumed.
"""

import numpy as np
import pandas as pd
from scipy import stats

from workflow.tables import KEYS

FASTER, SLOWER, UNKNOWN = "faster", "slower", "cannot be told"


def find_pairs(runs: pd.DataFrame, key: str, base: str | int) -> pd.DataFrame:
    """Runs (`after`) with those that differ from them in one dimension alone, in which they have the value `base`
    (`before`), in the order of the table."""
    alike = [name for name in KEYS[1:] if name != key]
    is_base = runs[key] == base
    before = runs.loc[is_base, ["run", *alike]].rename(columns={"run": "before"})
    pairs = runs.loc[~is_base, ["run", *alike]].rename(columns={"run": "after"}).merge(before, on=alike)
    return pairs[["before", "after"]]


def judge_gpu_times(phases: pd.DataFrame, pairs: pd.DataFrame, phase: str = "step") -> pd.DataFrame:
    """The pairs with a verdict on the GPU time of a phase, from the merged table `phases`; see judge for columns."""
    rows = phases[(phases["phase"] == phase) & (phases["gpu_busy_ns"] > 0)]
    logs = np.log(rows["gpu_busy_ns"]).groupby(rows["run"])
    times = pd.DataFrame({"mean": np.exp(logs.mean()) / 1e6, "spread": logs.std(), "n": logs.size()})
    return judge(times, pairs, "captured step", least=0.02)


def judge_wall_times(timings: pd.DataFrame, pairs: pd.DataFrame, phase: str = "step") -> pd.DataFrame:
    """The pairs with a verdict on the time of a phase without a profiler, from the merged table `timings`."""
    rows = timings[timings["phase"] == phase].set_index("run")
    columns = {"mean_ms": "mean", "process_spread": "spread", "processes": "n"}
    times = rows[list(columns)].rename(columns=columns).astype("float64")
    return judge(times.fillna({"n": 1.0}), pairs, "process")


def judge(times: pd.DataFrame, pairs: pd.DataFrame, sample: str, least: float = 0.0) -> pd.DataFrame:
    """The pairs (columns `before` and `after`, which are in the index of `times`) with further columns.

    `times` has the mean, its `spread` (the standard deviation of the logarithms of the samples, which is the relative
    one) and `n`, the number of samples. `sample` names one, `least` is the smallest relative difference that decides.
    The columns: `before_ms`, `after_ms`, `ratio` (below 1 is faster), its interval `low` to `high` (empty if no spread
    was measured), `p`, `verdict`, and `used`, which says from what.
    """
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
    table["p"] = 2 * stats.t.sf(np.abs(shift) / error, freedom)
    tested = table["p"].notna()
    adjusted = table["p"].copy()  # by Benjamini and Hochberg
    if tested.any():
        adjusted[tested] = stats.false_discovery_control(table["p"][tested])
    decided = (adjusted <= 0.05) & (np.abs(shift) > np.log1p(least))  # 5 % of the verdicts of one table may be wrong
    table["verdict"] = np.where(decided, np.where(shift < 0, FASTER, SLOWER), UNKNOWN)
    counts = zip(before["n"].fillna(0).astype(int), after["n"].fillna(0).astype(int), strict=True)
    plural = "processes" if sample == "process" else f"{sample}s"
    table["used"] = [
        f"{first} and {second} {plural}" if first != second else f"{first} {sample if first == 1 else plural} each"
        for first, second in counts
    ]
    return table.set_index(pairs.index)
