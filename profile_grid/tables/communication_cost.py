"""What communication costs a step of a run on several GPUs, without a profiler."""

from __future__ import annotations

import math

import pandas as pd

from cs336_model.program.variants.values import DIVIDED
from profile_grid.study.dimensions import GPUS, LEADING, PARALLEL, keys_without
from profile_grid.study.stages import TIMING
from profile_grid.tables.evidence import SPREADS, assumed_spread, judged, pooled
from profile_grid.tables.names import SLOWEST, WHOLE_STEP, WITHOUT_COMMUNICATION
from profile_grid.tables.per_pass import Merged, numbers


def communication_times(merged: Merged) -> pd.DataFrame:
    """One row per run on several GPUs: its step without a profiler, and the time of the same work without
    communication: one baseline for all runs that differ only in how gradients are reduced."""
    runs = merged["runs"]
    runs = runs[numbers(runs[GPUS.key]) > 1].reset_index(drop=True)
    times = merged["rank_times"]
    slowest = times[times["rank"] == SLOWEST].set_index("run")
    table = runs[LEADING].assign(status=runs[TIMING.status_column])
    for name, phase in (("", WHOLE_STEP), ("without_", WITHOUT_COMMUNICATION)):
        phase_times = slowest[slowest["phase"] == phase]
        for column in ("mean_ms", "std_ms"):
            table[f"{name}{column}"] = numbers(runs["run"].map(phase_times[column]))
    table = table.join(_baselines(table))
    cost = table["mean_ms"] - table["baseline_ms"]
    assumed = numbers(table["run"].map(assumed_spread(merged.waiting_share))).fillna(SPREADS[True])
    spread = table["baseline_spread"].fillna(0.0).clip(lower=assumed)
    error = spread * (1 + 1 / table["baseline_processes"]) ** 0.5
    degrees_of_freedom = (table["baseline_processes"] - 1).where(table["baseline_processes"] > 1, math.inf)
    verdict = judged(table["baseline_ms"] / table["mean_ms"], error, degrees_of_freedom)["verdict"]
    return table.assign(cost_ms=cost, cost_share=cost / table["mean_ms"], verdict=verdict)


def _baselines(table: pd.DataFrame) -> pd.DataFrame:
    """Per row the pooled time without communication of all runs with the same work, its spread and their number."""
    rows = []
    undivided = table[~table[PARALLEL.key].isin(DIVIDED)]  # otherwise a process updates only its part of the parameters
    for _, group in undivided.groupby(keys_without(PARALLEL.key), sort=False):
        times = group["without_mean_ms"].dropna()
        median, spread = pooled(times)
        rows += [(index, median, spread, float(len(times))) for index in group.index]
    names = ["baseline_ms", "baseline_spread", "baseline_processes"]
    return pd.DataFrame([row[1:] for row in rows], index=[row[0] for row in rows], columns=names, dtype="float64")
