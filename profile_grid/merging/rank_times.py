"""The times of every rank of a run on several GPUs, without a profiler, and of its steps without communication."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from profile_grid.measuring.results import StageResult
from profile_grid.merging.measured_runs import MeasuredRun
from profile_grid.merging.statistics_of_steps import statistics
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.names import WHOLE_STEP

SLOWEST = -1  # in the place of a rank: at every step the slowest of all
WITHOUT_COMMUNICATION = "step without communication"


def rank_times_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run on several GPUs, rank and phase: count, mean, standard deviation (n-1), min and max in ms."""
    rows = [
        run.leading | {"rank": rank, "phase": phase, **statistics(seconds)}
        for run in runs
        if run.complete(TIMING.name)
        for rank, phase, seconds in _times(run.results[TIMING.name])
    ]
    return pd.DataFrame(rows, columns=RANK_TIMES.all_names)


def _times(result: StageResult) -> Iterator[tuple[int, str, list[float]]]:
    """Rank, phase and seconds; first those of the slowest rank at every step."""
    ranks = result.facts.get("ranks") or []
    if ranks:
        yield SLOWEST, WHOLE_STEP, result.program.step_seconds
        yield SLOWEST, WITHOUT_COMMUNICATION, result.facts["step_no_sync_seconds"]
    for rank in ranks:
        yield rank["rank"], WHOLE_STEP, rank["step_seconds"]
        yield rank["rank"], WITHOUT_COMMUNICATION, rank["step_no_sync_seconds"]
        yield from ((rank["rank"], phase, seconds) for phase, seconds in rank["phase_seconds"].items() if seconds)


RANK_TIMES = TableSpec(
    "rank_times",
    "One row per run on several GPUs, rank and phase, without a profiler",
    columns(f"""
    rank | int | | number of the process, from 0; −1 for the slowest one at every step
    phase | text | | step, one phase of it, or {WITHOUT_COMMUNICATION}: the same, its gradients not reduced
    n | int | | measured steps; half as many without communication
    mean_ms | float | ms | mean over the measured steps
    std_ms | float | ms | standard deviation (n − 1)
    min_ms | float | ms | shortest step
    max_ms | float | ms | longest step
"""),
)
TABLES = (RANK_TIMES,)
