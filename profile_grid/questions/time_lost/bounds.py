"""The most that mending a finding gains of a step as it runs without a profiler, from what was found with one.

Under a profiler the host takes longer, so the GPU idles longer. Without one it idles in a step for as long as that
takes beyond the GPU's own time, which a profiler does not change; idle time of any cause is no more than this.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.rules import OF_IDLE_TIME
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged, numbers

UNITS = ("ms", "percent")


def bounded(findings: pd.DataFrame, merged: Merged) -> pd.DataFrame:
    """The findings with unprofiled_ms and unprofiled_percent; empty for runs that were not timed without a profiler."""
    run = findings["run"].astype("str")
    step_ms = numbers(run.map(_step_ms(merged)))
    idle_ms = (step_ms - numbers(run.map(_busy_ms(merged)))).clip(lower=0.0)
    room_ms = idle_ms.where(findings["code"].isin(OF_IDLE_TIME), step_ms)
    gain_ms = pd.Series(np.minimum(numbers(findings["gain_ms"]), room_ms), index=findings.index)
    return findings.assign(unprofiled_ms=gain_ms, unprofiled_percent=100 * gain_ms / step_ms)


def at_most(findings: pd.DataFrame) -> pd.DataFrame:
    """Bounded findings with what is shown of them, `ms` and `percent`: of a step without a profiler where there is one,
    else of the captured one."""
    gains = {name: numbers(findings[f"unprofiled_{name}"]).fillna(numbers(findings[f"gain_{name}"])) for name in UNITS}
    return findings.assign(**gains)


def _step_ms(merged: Merged) -> pd.Series:
    """By run: the mean time of a step without a profiler."""
    timings = merged["timings"]
    return _by_run(timings[timings["phase"] == WHOLE_STEP], "mean_ms").mean()


def _busy_ms(merged: Merged) -> pd.Series:
    """By run: how long the GPU runs in a captured step, the mean of them."""
    phases = merged["phases"]
    return _by_run(phases[phases["phase"] == WHOLE_STEP], "gpu_busy_ns").mean() / 1e6


def _by_run(rows: pd.DataFrame, column: str):
    return numbers(rows[column]).groupby(rows["run"].astype("str"), sort=False)
