"""The table of all-reduce alone, by run and size: the time of an all-reduce is that of its slowest rank."""

from dataclasses import dataclass

import pandas as pd

from profile_grid.host.processes.ranks import slowest_times
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.stages.timing.tables import statistics
from profile_grid.study.stages import ALL_REDUCE
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.typed_json import parse_as


@dataclass(frozen=True)
class SizeTimes:
    """The measurement of one size by a rank: see cs336_model/program/parallel/all_reduce.py."""

    bytes: int
    warmup_seconds: list[float]
    seconds: list[float]


@dataclass(frozen=True)
class AllReduceFacts:
    """The facts of all_reduce.json."""

    ranks: list[list[SizeTimes]]  # by rank, then by size


def study_tables(runs: list[MeasuredRun]) -> dict[str, pd.DataFrame]:
    """`all_reduce`, of the runs in which the stage is complete."""
    rows = []
    for run in runs:
        if run.is_complete(ALL_REDUCE.name):
            facts = parse_as(AllReduceFacts, run.results[ALL_REDUCE.name].facts, "facts")
            for times_by_rank in zip(*facts.ranks, strict=True):  # of one size
                seconds = slowest_times([times.seconds for times in times_by_rank])
                rows.append(run.leading | {"bytes": times_by_rank[0].bytes, **statistics(seconds)})
    return {"all_reduce": ALL_REDUCE_TABLE.table(rows)}


ALL_REDUCE_TABLE = TableSpec(
    "all_reduce",
    "One row per size, and run with the stage all_reduce: all-reduce alone between its GPUs, without a model",
    columns("""
    bytes | int | B | size of the fp32 tensor that every rank has
    n | int | | consecutive all-reduces that were timed
    mean_ms | float | ms | their mean time, always of the slowest rank
    std_ms | float | ms | standard deviation (n − 1)
    min_ms | float | ms | the shortest
    max_ms | float | ms | the longest
"""),
)
TABLES = (ALL_REDUCE_TABLE,)
