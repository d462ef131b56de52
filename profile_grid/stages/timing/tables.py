"""The tables of times without a profiler: every single one, and their statistics by run and phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import ProgramResult, StageResult
from profile_grid.stages.timing.accuracy import ACCURACY, accuracy_table
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.step_statistics import statistics

STEP = "step"
SLOWEST = -1  # in the place of a rank: at every step the slowest of all
WITHOUT_COMMUNICATION = "step without communication"
Times = dict[str, list[float]]  # seconds by phase


def study_tables(runs: list[MeasuredRun]) -> dict[str, pd.DataFrame]:
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


def rank_times_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run on several GPUs, rank and phase: count, mean, standard deviation (n-1), min and max in ms."""
    rows = [
        run.leading | {"rank": rank, "phase": phase, **statistics(seconds)}
        for run in runs
        if run.complete(TIMING.name)
        for rank, phase, seconds in _rank_times(run.results[TIMING.name])
    ]
    return pd.DataFrame(rows, columns=RANK_TIMES.all_names)


def _rank_times(result: StageResult) -> Iterator[tuple[int, str, list[float]]]:
    """Rank, phase and seconds; first those of the slowest rank at every step."""
    ranks = result.facts.get("ranks") or []
    if ranks:
        yield SLOWEST, STEP, result.program.step_seconds
        yield SLOWEST, WITHOUT_COMMUNICATION, result.facts["step_no_sync_seconds"]
    for rank in ranks:
        yield rank["rank"], STEP, rank["step_seconds"]
        yield rank["rank"], WITHOUT_COMMUNICATION, rank["step_no_sync_seconds"]
        yield from ((rank["rank"], phase, seconds) for phase, seconds in rank["phase_seconds"].items() if seconds)


def losses_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run that was timed whole, and loss."""
    rows = [
        run.leading | {"number": number, "loss": loss}
        for run in runs
        if run.complete(TIMING.name)
        for number, loss in enumerate(run.results[TIMING.name].program.losses)
    ]
    return pd.DataFrame(rows, columns=LOSSES.all_names)


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
LOSSES = TableSpec(
    "losses",
    "One row per run and loss of the process without a profiler, that of the whole batch where GPUs share it",
    columns("""
    number | int | | from 0: steps in their order, warm-up first; in mode forward that of one pass of its own
    loss | float | nats | mean cross-entropy
"""),
)
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
TABLES = (
    ACCURACY,
    RANK_TIMES,
    LOSSES,
    TIMINGS,
    STEPS,
    WARMUP_STEPS,
)
