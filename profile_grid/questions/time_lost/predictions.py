"""The gain that the diagnosis predicts for a remedy at most, compared with the measured gain of the run with the
remedy."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cs336_model.arithmetic.memory import FUSED
from profile_grid.questions.time_lost.bounds import bounded
from profile_grid.study.dimensions import ATTENTION, BATCH_SIZE, COMPILE, GPUS, LEADING, PRECISION, Dimension
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged
from profile_grid.tables.ratios import times_with_base

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
