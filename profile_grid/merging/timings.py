"""The tables of times without a profiler: every single one, and their statistics by run and phase."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from profile_grid.measuring.results import ProgramResult
from profile_grid.merging.accuracy import ACCURACY, accuracy_table
from profile_grid.merging.losses import LOSSES, losses_table
from profile_grid.merging.measured_runs import MeasuredRun
from profile_grid.merging.rank_times import RANK_TIMES, rank_times_table
from profile_grid.merging.statistics_of_steps import statistics
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import TableSpec, columns

STEP = "step"
Times = dict[str, list[float]]  # seconds by phase


def timing_tables(runs: list[MeasuredRun]) -> dict[str, pd.DataFrame]:
    """`timings`, `steps`, `warmup_steps`, `accuracy`, `rank_times` and `losses`."""
    return {
        "timings": timings_table(runs),
        "steps": steps_table(runs, times_by_phase),
        "warmup_steps": steps_table(runs, _warmup_times),
        "accuracy": accuracy_table(runs),
        "rank_times": rank_times_table(runs),
        "losses": losses_table(runs),
    }


def timings_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run and phase: count, mean, standard deviation (n-1), min and max in ms; NaN where not measured."""
    rows = []
    for run in runs:
        status = run.statuses[TIMING.name].status
        times = times_by_phase(run.results[TIMING.name].program) if run.complete(TIMING.name) else {STEP: []}
        rows += [
            run.leading | {"phase": phase, **statistics(seconds), "status": status} for phase, seconds in times.items()
        ]
    return pd.DataFrame(rows)


def steps_table(runs: list[MeasuredRun], times_of: Callable[[ProgramResult], Times]) -> pd.DataFrame:
    """One row per run, phase and timed step: every single time that `times_of` a program gives, in ms."""
    rows = []
    for run in runs:
        for phase, seconds in times_of(run.results[TIMING.name].program).items():
            rows += [run.leading | {"phase": phase, "step": step, "ms": s * 1e3} for step, s in enumerate(seconds)]
    return pd.DataFrame(rows, columns=[*LEADING, "phase", "step", "ms"])


def times_by_phase(program: ProgramResult) -> Times:
    """Seconds of the steps, then of each phase that the run's mode has; of no step where the program has no times."""
    of_phases = {phase: times for phase, times in program.phase_seconds.items() if times}
    return {STEP: program.step_seconds} | of_phases


def _warmup_times(program: ProgramResult) -> Times:
    """The same of the warm-up steps."""
    phases = program.warmup_phase_seconds
    return {STEP: program.warmup_seconds} | {phase: times for phase, times in phases.items() if times}


TIMINGS = TableSpec(
    "timings",
    "One row per run and phase, from the process without a profiler",
    columns("""
    phase | text | | step (by timeit.default_timer, device synchronize included), or one phase of it
    n | int | | measured steps
    mean_ms | float | ms | mean over the measured steps
    std_ms | float | ms | standard deviation (n − 1)
    min_ms | float | ms | shortest step
    max_ms | float | ms | longest step
    status | text | | as timing_status of runs; without figures where it is not complete
"""),
)
STEPS = TableSpec(
    "steps",
    "One row per run, phase and timed step: every single time",
    columns("""
    phase | text | | step, or one phase of it
    step | int | | number of the measured step, from 0
    ms | float | ms | time of this step or phase, without a profiler
"""),
)
WARMUP_STEPS = TableSpec(
    "warmup_steps",
    "One row per run, phase and warm-up step of the timing: every single time",
    columns("""
    phase | text | | step, or one phase of it
    step | int | | number of the warm-up step, from 0; a model is compiled in a step before
    ms | float | ms | time of this step or phase, without a profiler
"""),
)
TABLES = (
    ACCURACY,
    RANK_TIMES,
    LOSSES,
    TIMINGS,
    STEPS,
    WARMUP_STEPS,
)
