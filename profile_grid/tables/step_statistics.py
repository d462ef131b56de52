"""Statistics of the times of several steps."""

from collections.abc import Sequence

import numpy as np

STATISTICS = ["n", "mean_ms", "std_ms", "min_ms", "max_ms"]


def statistics(seconds: Sequence[float]) -> dict[str, float]:
    """STATISTICS of times in seconds: number, mean, standard deviation (n - 1), minimum and maximum; NaN without
    times."""
    ms = np.asarray(seconds, dtype="float64") * 1e3
    if not len(ms):
        return {"n": 0} | dict.fromkeys(STATISTICS[1:], np.nan)
    std = ms.std(ddof=1) if len(ms) > 1 else np.nan
    return {"n": len(ms), "mean_ms": ms.mean(), "std_ms": std, "min_ms": ms.min(), "max_ms": ms.max()}
