"""The table of all-reduce alone: by run and size what one takes, in each that of the slowest rank."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from profile_grid.host.processes.ranks import slowest
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.typed_json import parse_as
from profile_grid.study.described import Described, columns
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import ALL_REDUCE
from profile_grid.tables.step_statistics import STATISTICS, statistics

KINDS = {"bytes": "Int64", "n": "Int64"} | dict.fromkeys(STATISTICS[1:], "float64")


@dataclass(frozen=True)
class Size:
    """What a rank measured of one size: see cs336_model/program/parallel/all_reduce.py."""

    bytes: int
    warmup_seconds: list[float]
    seconds: list[float]


@dataclass(frozen=True)
class AllReduceFacts:
    """The facts of all_reduce.json."""

    ranks: list[list[Size]]


def study_tables(runs: list[MeasuredRun]) -> dict[str, pd.DataFrame]:
    """`all_reduce`, of the runs that have the stage whole."""
    rows = [
        run.leading | {"bytes": of_ranks[0].bytes, **statistics(slowest([size.seconds for size in of_ranks]))}
        for run in runs
        if run.complete(ALL_REDUCE.name)
        for of_ranks in zip(*parse_as(AllReduceFacts, run.results[ALL_REDUCE.name].facts, "facts").ranks, strict=True)
    ]
    return {"all_reduce": pd.DataFrame(rows, columns=[*LEADING, *KINDS]).astype(KINDS)}


DESCRIBED = {
    "all_reduce": Described(
        "One row per run with the stage all_reduce and size: all-reduce alone between its GPUs, no model beside it",
        columns("""
    bytes | B | size of the fp32 tensor that every rank has
    n | | all-reduces that were timed, one right behind the other
    mean_ms | ms | their mean time, in each that of the slowest rank
    std_ms | ms | standard deviation (n − 1)
    min_ms | ms | the shortest
    max_ms | ms | the longest
"""),
    ),
}
