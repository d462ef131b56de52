"""The largest gain from fixing a finding, compared with the measured gain of the run with the remedy.

Under a profiler the host takes longer, so the GPU idles longer. Without one, it idles for the time of the step minus
the GPU's own time, which a profiler does not change. Idle time of any cause is at most that.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cs336_model.arithmetic.memory import FUSED
from kernel_tables.diagnosis.rules import IDLE_TIME_RULES
from profile_grid.gpu_peaks import peaks_of
from profile_grid.study.dimensions import ATTENTION, BATCH_SIZE, COMPILE, GPUS, LEADING, PRECISION, Dimension
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged, numbers
from profile_grid.tables.ratios import times_with_base

UNITS = ("ms", "percent")
NO_TENSOR_CORES = "no_tensor_cores"  # its finding holds all of the time of these matrix multiplies


def bounded(findings: pd.DataFrame, merged: Merged) -> pd.DataFrame:
    """The findings with unprofiled_ms and unprofiled_percent; NaN for runs that were not timed without a profiler."""
    run = findings["run"].astype("str")
    step_ms = numbers(run.map(_step_ms(merged)))
    idle_ms = (step_ms - numbers(run.map(_busy_ms(merged)))).clip(lower=0.0)
    room_ms = idle_ms.where(findings["code"].isin(IDLE_TIME_RULES), step_ms)
    saved = numbers(run.map(_saved_by_tensor_cores(merged))).fillna(1.0).where(findings["code"] == NO_TENSOR_CORES, 1.0)
    gain_ms = pd.Series(np.minimum(numbers(findings["gain_ms"]) * saved, room_ms), index=findings.index)
    return findings.assign(unprofiled_ms=gain_ms, unprofiled_percent=100 * gain_ms / step_ms)


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


def _step_ms(merged: Merged) -> pd.Series:
    """Mean time of a step without a profiler, by run."""
    timings = merged["timings"]
    return _by_run(timings[timings["phase"] == WHOLE_STEP], "mean_ms").mean()


def _busy_ms(merged: Merged) -> pd.Series:
    """Mean time per captured step in which the GPU runs anything, by run."""
    phases = merged["phases"]
    return _by_run(phases[phases["phase"] == WHOLE_STEP], "gpu_busy_ns").mean() / 1e6


def _by_run(rows: pd.DataFrame, column: str):
    return numbers(rows[column]).groupby(rows["run"].astype("str"), sort=False)


LAUNCHING = ("launch_bound", "small_kernels")


@dataclass(frozen=True)
class Remedy:
    """Values of a dimension (None: all) that fix the findings of some rules. `halves_the_rest`: numbers of half the
    size at best halve the traffic of the remaining work. `on_one_gpu`: with several GPUs a larger batch also divides
    their communication by more sequences, which is scaling (question n) and fixes no finding."""

    dimension: Dimension
    values: tuple | None
    codes: tuple[str, ...]
    halves_the_rest: bool = False
    on_one_gpu: bool = False


REMEDIES = (
    Remedy(PRECISION, ("tf32",), ("no_tensor_cores",)),
    Remedy(PRECISION, ("bf16", "bf16-weights"), ("no_tensor_cores",), halves_the_rest=True),
    Remedy(COMPILE, ("on",), (*LAUNCHING, "unfused_elementwise", "unfused_attention", "casts")),
    Remedy(COMPILE, ("attention",), (*LAUNCHING, "unfused_attention")),
    Remedy(ATTENTION, FUSED, (*LAUNCHING, "unfused_attention")),
    Remedy(BATCH_SIZE, None, (*LAUNCHING, "unfused_optimizer", "idle_host", "idle_sync"), on_one_gpu=True),
)


def predictions(merged: Merged) -> pd.DataFrame:
    """One row per run that is a remedy for another: the largest gain by the other's diagnosis, and the measured gain.

    Gains are percent of a step, for a larger batch of the time per sequence. A remedy without a finding has a predicted
    gain of zero.
    """
    findings = bounded(merged["findings"], merged)
    diagnosed = set(findings["run"])
    losses = findings[~findings["abstained"].astype(bool)].set_index("run")
    tables = [_of_remedy(remedy, merged, losses, diagnosed) for remedy in REMEDIES]
    filled = [table for table in tables if len(table)]
    return pd.concat(filled or tables[:1], ignore_index=True)


def _of_remedy(remedy: Remedy, merged: Merged, losses: pd.DataFrame, diagnosed: set) -> pd.DataFrame:
    key = remedy.dimension.key
    times = times_with_base(merged, remedy.dimension)
    times = times[(times["phase"] == WHOLE_STEP) & times["base_run"].isin(diagnosed)].reset_index(drop=True)
    if remedy.values is not None:
        times = times[times[key].isin(remedy.values)].reset_index(drop=True)
    if remedy.on_one_gpu:
        times = times[times[GPUS.key].astype("int64") == 1].reset_index(drop=True)
    smaller = times[key].astype("float64") / remedy.dimension.default if remedy.dimension is BATCH_SIZE else 1.0
    of_own = 1 / times["speed_up"] / smaller
    predicted = [_predicted(remedy, losses[losses.index == run]) for run in times["base_run"]]
    measured = 100 * (1 - of_own)
    bound = np.array([percent for percent, _ in predicted], "float64")
    least = 100 * (1 - 1 / times["speed_up_low"] / smaller)  # of the interval between processes
    table = times[[*LEADING, "base_run"]].assign(
        remedy=key,
        codes=[codes for _, codes in predicted],
        predicted_percent=bound,
        predicted_ms=times["base_mean_ms"] * bound / 100,
        measured_percent=measured,
        measured_ms=times["base_mean_ms"] * measured / 100,
        holds=((measured <= bound) | (least <= bound)).astype("boolean"),
    )
    return table.astype({"codes": "str", "remedy": "str"})


def _predicted(remedy: Remedy, losses: pd.DataFrame) -> tuple[float, str]:
    """(largest gain in percent of the step, codes of the rules), from the findings of the run without the remedy."""
    matching = losses[losses["code"].isin(remedy.codes)]
    percent = min(float(matching["unprofiled_percent"].sum()), 100.0)
    if remedy.halves_the_rest:
        percent += (100 - percent) / 2
    return percent, ", ".join(matching["code"])
