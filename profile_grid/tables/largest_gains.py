"""How much time each finding of the diagnosis could save at most in a step without a profiler.

Under a profiler the host takes longer, so the GPU idles longer. Without one, the GPU idles for the time of the step
minus its busy time, which a profiler does not change. Idle time of any cause is at most that.
"""

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.rules import COUNTER_RULES, IDLE_TIME_RULES
from profile_grid.gpu_peaks import peaks_of
from profile_grid.results.results import COMPLETE
from profile_grid.study.stages import COUNTERS
from profile_grid.tables.per_pass import Merged, as_floats, in_order_of

UNITS = ("ms", "percent")
NO_TENSOR_CORES = "no_tensor_cores"  # the rule whose gain is the entire time of these matrix multiplies
SOURCES = ("runs", "timings", "phases", "findings", "counter_findings")  # the merged tables that this module reads


def largest_first(merged: Merged) -> pd.DataFrame:
    """One row per run and finding, or rule that abstains, with its largest gains; in a run, the largest first, then
    rules that abstain."""
    findings = with_shown_gains(with_unprofiled_gains(all_findings(merged), merged))
    findings = findings.assign(_ms=findings["ms"].fillna(0.0))  # by which rows without a gain can be sorted
    return in_order_of(findings, merged["runs"]["run"], "abstained", "_ms", largest_first="_ms").drop(columns="_ms")


def all_findings(merged: Merged) -> pd.DataFrame:
    """The findings of every run. In a run with counters, rules that need them have their findings from the counters,
    instead of the rows that say that they lack data."""
    findings, runs = merged["findings"], merged["runs"]
    runs_with_counters = runs.loc[runs[COUNTERS.status_column] == COMPLETE, "run"]
    if runs_with_counters.empty:
        return findings
    is_replaced = findings["run"].isin(runs_with_counters) & findings["code"].isin(
        [rule.code for rule in COUNTER_RULES]
    )
    return pd.concat([findings[~is_replaced], merged["counter_findings"]], ignore_index=True)


def with_unprofiled_gains(findings: pd.DataFrame, merged: Merged) -> pd.DataFrame:
    """The findings with unprofiled_ms and unprofiled_percent: the gain, limited to what a step without a profiler
    allows; for NO_TENSOR_CORES, only what bf16 saves. NaN for runs that were not timed without a profiler."""
    run = findings["run"].astype("str")
    step_ms = as_floats(run.map(merged.step_ms))
    idle_ms = (step_ms - as_floats(run.map(merged.device_busy_ms))).clip(lower=0.0)
    limit_ms = idle_ms.where(findings["code"].isin(IDLE_TIME_RULES), step_ms)
    is_matmul = findings["code"] == NO_TENSOR_CORES
    saved_share = as_floats(run.map(_saved_by_tensor_cores(merged))).fillna(1.0).where(is_matmul, 1.0)
    gain_ms = pd.Series(np.minimum(as_floats(findings["gain_ms"]) * saved_share, limit_ms), index=findings.index)
    return findings.assign(unprofiled_ms=gain_ms, unprofiled_percent=100 * gain_ms / step_ms)


def _saved_by_tensor_cores(merged: Merged) -> dict[str, float]:
    """The share of the time of fp32 matrix multiplies that bf16 saves at the peaks of a run's GPU, by run, if known."""
    peaks_by_run = {row.run: peaks_of(row.device_name) for row in merged["runs"].itertuples()}
    return {
        run: 1 - peaks.fp32_flop_per_s / peaks.bf16_flop_per_s
        for run, peaks in peaks_by_run.items()
        if peaks and peaks.bf16_flop_per_s
    }


def with_shown_gains(findings: pd.DataFrame) -> pd.DataFrame:
    """Findings with unprofiled gains, and with `ms` and `percent` to show: of a step without a profiler if there is
    one, else of the captured one."""
    gains = {
        name: as_floats(findings[f"unprofiled_{name}"]).fillna(as_floats(findings[f"gain_{name}"])) for name in UNITS
    }
    return findings.assign(**gains)
