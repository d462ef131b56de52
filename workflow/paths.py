"""Paths of the files of a study, relative to the working folder."""

from collections.abc import Callable, Iterable, Mapping

from profile_grid.study.stage import Stage
from profile_grid.study.stages import STAGE_BY_NAME, TIMING


def table_files(names: Iterable[str], suffixes: Iterable[str] = ("csv", "parquet")) -> list[str]:
    """The files of these tables."""
    return [f"results/tables/{name}.{suffix}" for name in names for suffix in suffixes]


def run_files(runs: Mapping, name_of: Callable[[Stage], str | None]) -> list[str]:
    """One file for every stage of every run: `name_of` returns its name, or None if the stage has none."""
    names = {stage: name_of(stage) for run in runs.values() for stage in run.stages}
    return [f"results/runs/{name}/{names[stage]}" for name, run in runs.items() for stage in run.stages if names[stage]]


def timings_of_round(number: int, runs: Iterable[str]) -> list[str]:
    """The timings of these runs in a round of processes; those of the first round are with the other results."""
    folder = "results/runs" if number == 1 else f"results/processes/{number}"
    return [f"{folder}/{run}/{TIMING.result_file}" for run in runs]


def further_timings(processes: int, runs: Mapping) -> list[str]:
    """The timings of the timed runs by all processes but the first."""
    timed_runs = [name for name, run in runs.items() if TIMING in run.stages]
    return [path for number in range(2, processes + 1) for path in timings_of_round(number, timed_runs)]


def inputs_of_tables(stage: Stage) -> list[str]:
    """Names of the files of a run from which the tables of a stage are made: results of this and of other stages."""
    stages = [stage, *(STAGE_BY_NAME[name] for name in stage.tables_of_a_run.reads)]
    return [name for source in stages for name in (source.result_file, *source.files)]
