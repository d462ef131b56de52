"""What fixing each finding of the diagnosis saves at most in a step without a profiler.

Under a profiler the host takes longer, so the GPU idles longer. Without one, it idles for the time of the step minus
the GPU's own time, which a profiler does not change. Idle time of any cause is at most that.
"""

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.rules import IDLE_TIME_RULES, OF_COUNTERS
from profile_grid.gpu_peaks import peaks_of
from profile_grid.results.results import COMPLETE
from profile_grid.study.stages import COUNTERS
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged, in_order_of, numbers

UNITS = ("ms", "percent")
NO_TENSOR_CORES = "no_tensor_cores"  # its finding holds all of the time of these matrix multiplies
SOURCES = ("runs", "timings", "phases", "findings", "counter_findings")  # merged tables that are read


def largest_first(merged: Merged) -> pd.DataFrame:
    """One row per run and rule that speaks or abstains, with its bounds; the largest gain of a run first."""
    findings = at_most(bounded(all_findings(merged), merged))
    findings = findings.assign(_less=-findings["ms"].fillna(0.0))
    return in_order_of(findings, merged["runs"]["run"], "abstained", "_less").drop(columns="_less")


def all_findings(merged: Merged) -> pd.DataFrame:
    """The findings of every run; of a run with counters, also those of the rules that need them."""
    findings, runs = merged["findings"], merged["runs"]
    counted = runs.loc[runs[COUNTERS.status_column] == COMPLETE, "run"]
    if counted.empty:
        return findings
    silent = findings["run"].isin(counted) & findings["code"].isin([rule.code for rule in OF_COUNTERS])
    return pd.concat([findings[~silent], merged["counter_findings"]], ignore_index=True)


def bounded(findings: pd.DataFrame, merged: Merged) -> pd.DataFrame:
    """The findings with unprofiled_ms and unprofiled_percent; NaN for runs that were not timed without a profiler."""
    run = findings["run"].astype("str")
    step = numbers(run.map(step_ms(merged)))
    idle_ms = (step - numbers(run.map(_busy_ms(merged)))).clip(lower=0.0)
    room_ms = idle_ms.where(findings["code"].isin(IDLE_TIME_RULES), step)
    saved = numbers(run.map(_saved_by_tensor_cores(merged))).fillna(1.0).where(findings["code"] == NO_TENSOR_CORES, 1.0)
    gain_ms = pd.Series(np.minimum(numbers(findings["gain_ms"]) * saved, room_ms), index=findings.index)
    return findings.assign(unprofiled_ms=gain_ms, unprofiled_percent=100 * gain_ms / step)


def _saved_by_tensor_cores(merged: Merged) -> pd.Series:
    """By run the share of the time of fp32 matrix multiplies that bf16 saves at the GPU's peaks; NaN if unknown."""
    peaks = {row.run: peaks_of(row.device_name) for row in merged["runs"].itertuples()}
    known = {run: each for run, each in peaks.items() if each and each.bf16_flop_per_s}
    return pd.Series({run: 1 - each.fp32_flop_per_s / each.bf16_flop_per_s for run, each in known.items()}, dtype=float)


def at_most(findings: pd.DataFrame) -> pd.DataFrame:
    """Bounded findings with `ms` and `percent` to show: of a step without a profiler if there is one, else of the
    captured one."""
    gains = {name: numbers(findings[f"unprofiled_{name}"]).fillna(numbers(findings[f"gain_{name}"])) for name in UNITS}
    return findings.assign(**gains)


def step_ms(merged: Merged) -> pd.Series:
    """Mean time of a step without a profiler, by run."""
    timings = merged["timings"]
    return _by_run(timings[timings["phase"] == WHOLE_STEP], "mean_ms").mean()


def _busy_ms(merged: Merged) -> pd.Series:
    """Mean time per captured step in which the GPU runs anything, by run."""
    phases = merged["phases"]
    return _by_run(phases[phases["phase"] == WHOLE_STEP], "gpu_busy_ns").mean() / 1e6


def _by_run(rows: pd.DataFrame, column: str):
    return numbers(rows[column]).groupby(rows["run"].astype("str"), sort=False)
