"""What communication costs a step of a run on several GPUs, without a profiler."""

import math

import pandas as pd

from cs336_model.program.variants.values import FSDP
from profile_grid.study.dimensions import GPUS, LEADING, PARALLEL, keys_without
from profile_grid.study.stages import TIMING
from profile_grid.tables.evidence import (
    FASTER,
    HOST_BOUND_SPREAD,
    UNCLEAR,
    assumed_spread,
    error_of_ratio,
    pooled_time,
    ratio_verdicts,
)
from profile_grid.tables.names import PROCESS_STATISTICS, SLOWEST, WHOLE_STEP, WITHOUT_COMMUNICATION
from profile_grid.tables.per_pass import Merged, as_floats

PHASE_BY_PREFIX = {"": WHOLE_STEP, "without_": WITHOUT_COMMUNICATION}  # by prefix of the columns about this phase


def communication_times(merged: Merged) -> pd.DataFrame:
    """One row per run on several GPUs, timed without a profiler: its step, its step without communication, and the cost
    of communication with a verdict. The cost is the step minus a baseline without communication. Runs that differ only
    in how gradients are reduced have the same baseline; runs that divide the parameters have none."""
    runs = merged["runs"]
    runs = runs[as_floats(runs[GPUS.key]) > 1].reset_index(drop=True)
    times = merged["rank_times"]
    slowest = times[times["rank"] == SLOWEST].set_index("run")
    table = runs[LEADING].assign(status=runs[TIMING.status_column])
    for prefix, phase in PHASE_BY_PREFIX.items():
        phase_times = slowest[slowest["phase"] == phase]
        for column in ("mean_ms", "std_ms", *PROCESS_STATISTICS):
            table[f"{prefix}{column}"] = as_floats(runs["run"].map(phase_times[column]))
    table = table.join(_baselines(table))
    cost_ms = table["mean_ms"] - table["baseline_ms"]
    assumed = as_floats(table["run"].map(assumed_spread(merged.waiting_share))).fillna(HOST_BOUND_SPREAD)
    verdict = ratio_verdicts(table["baseline_ms"] / table["mean_ms"], *_error_of_cost(table, assumed))["verdict"]
    table = table.drop(columns=[f"{prefix}{column}" for prefix in PHASE_BY_PREFIX for column in PROCESS_STATISTICS])
    verdict = verdict.replace(FASTER, UNCLEAR)  # communication shortens no step: the assumed spread is too small there
    return table.assign(cost_ms=cost_ms, cost_share=cost_ms / table["mean_ms"], verdict=verdict)


def _baselines(table: pd.DataFrame) -> pd.DataFrame:
    """Per row of `table`: the median time without communication of all runs with the same work, the spread between
    their processes, and the number of processes; no row if the parameters are divided."""
    baselines = {}
    undivided = table[table[PARALLEL.key] != FSDP]  # otherwise a process updates only its part of the parameters
    for _, group in undivided.groupby(keys_without(PARALLEL.key), sort=False):
        timed = group[group["without_mean_ms"].notna()]
        baseline = pooled_time(timed["without_mean_ms"], *(timed[f"without_{name}"] for name in PROCESS_STATISTICS))
        baselines |= dict.fromkeys(group.index, baseline)
    columns = ["baseline_ms", "baseline_spread", "baseline_processes"]
    return pd.DataFrame(list(baselines.values()), index=list(baselines), columns=columns, dtype="float64")


def _error_of_cost(table: pd.DataFrame, assumed: pd.Series) -> tuple[pd.Series, pd.Series]:
    """(standard error of the logarithm of baseline ÷ step, degrees of freedom). If only one process timed a step, the
    spread of the baseline's processes is taken for it, and at least the assumed one."""
    has_several = table["processes"] > 1
    step = pd.DataFrame({"spread": table["process_spread"], "processes": table["processes"]})
    baseline = pd.DataFrame({"spread": table["baseline_spread"].fillna(0.0), "processes": table["baseline_processes"]})
    error, freedom = error_of_ratio(step, baseline)
    error_of_one = baseline["spread"].clip(lower=assumed) * (1 + 1 / baseline["processes"]) ** 0.5
    freedom_of_one = (baseline["processes"] - 1).where(baseline["processes"] > 1, math.inf)
    return error.where(has_several, error_of_one), freedom.where(has_several, freedom_of_one)
