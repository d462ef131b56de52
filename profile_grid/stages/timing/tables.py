"""The tables of times without a profiler, and how far the first step of each run is from one in fp64."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from cs336_model.program.variants.values import FP32, UNIT_ROUNDOFF
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import Accuracy, ProgramResult, StageResult
from profile_grid.study import dimensions, stages
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.names import PROCESS_STATISTICS, SLOWEST, WHOLE_STEP, WITHOUT_COMMUNICATION

STATISTICS = ["n", "mean_ms", "std_ms", "min_ms", "max_ms"]  # columns of timings and rank_times
# Measured on a CPU with 2 to 48 layers: logits in fp32 are off by 5 to 13 roundings, in bf16 by 1 to 3, with bf16
# weights by 2 to 5. Real errors (a missing mask or scale, another precision) are far larger.
ROUNDINGS = 8  # in the precision of the run, that a result may be off by
SUMMATION_ERROR = 128 * UNIT_ROUNDOFF[FP32]  # in addition: products are summed in fp32 in every precision
ERRORS = ("loss_error", "logits_error", "gradient_norm_error")  # attributes of Accuracy: errors relative to fp64

Times = dict[str, list[float]]  # seconds by phase
Key = TypeVar("Key")


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
    """One row per run and phase: the statistics, in ms, of all processes that timed it; without times, only `step`."""
    rows = []
    for run in runs:
        status = run.statuses[stages.TIMING.name].status
        times = [times_by_phase(result.program) for result in run.timings] or [{WHOLE_STEP: []}]  # one per process
        rows += [run.leading | {"phase": phase, **_statistics_of(times, phase), "status": status} for phase in times[0]]
    return pd.DataFrame(rows)


def _statistics_of(times_by_process: list[dict[Key, list[float]]], key: Key) -> dict[str, float]:
    """The statistics of the times that all processes have under this key: a phase, or (rank, phase)."""
    return statistics_of_processes([times.get(key, []) for times in times_by_process])


def steps_table(runs: list[MeasuredRun], times_of: Callable[[ProgramResult], Times]) -> pd.DataFrame:
    """One row per run, phase and step: every time, in ms, that `times_of` returns for the first process."""
    rows = []
    for run in runs:
        for phase, times in times_of(run.results[stages.TIMING.name].program).items():
            for step, seconds in enumerate(times):
                rows.append(run.leading | {"phase": phase, "step": step, "ms": 1e3 * seconds})
    return pd.DataFrame(rows, columns=[*dimensions.LEADING, "phase", "step", "ms"])


def times_by_phase(program: ProgramResult) -> Times:
    """Seconds of the steps ([] if the program has no times), then of each phase that has times."""
    return _measured_times(program.step_seconds, program.phase_seconds)


def _warmup_times(program: ProgramResult) -> Times:
    """`times_by_phase` of the warm-up steps."""
    return _measured_times(program.warmup_seconds, program.warmup_phase_seconds)


def _measured_times(step_seconds: list[float], phase_seconds: Times) -> Times:
    """The times of the steps as those of the phase `step`, then those of the phases that have any."""
    return {WHOLE_STEP: step_seconds} | {phase: times for phase, times in phase_seconds.items() if times}


def rank_times_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run on several GPUs, rank and phase: the statistics of all processes that timed it, in ms."""
    rows = []
    for run in runs:
        times = [_times_by_rank_and_phase(result) for result in run.timings]  # one per process
        for rank, phase in times[0] if times else ():
            rows.append(run.leading | {"rank": rank, "phase": phase, **_statistics_of(times, (rank, phase))})
    return pd.DataFrame(rows, columns=RANK_TIMES.all_names)


def _times_by_rank_and_phase(result: StageResult) -> dict[tuple[int, str], list[float]]:
    """Seconds by (rank, phase); first of rank SLOWEST: each step's time on its slowest rank. {} for a single rank."""
    times = {}
    ranks = result.facts.get("ranks") or []
    if ranks:
        times[SLOWEST, WHOLE_STEP] = result.program.step_seconds
        times[SLOWEST, WITHOUT_COMMUNICATION] = result.facts["step_no_sync_seconds"]
    for rank in ranks:
        number = rank["rank"]
        times[number, WHOLE_STEP] = rank["step_seconds"]
        times[number, WITHOUT_COMMUNICATION] = rank["step_no_sync_seconds"]
        times |= {(number, phase): seconds for phase, seconds in rank["phase_seconds"].items() if seconds}
    return times


def losses_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per loss of the first process, for each run whose stage timing is complete."""
    rows = [
        run.leading | {"number": number, "loss": loss}
        for run in runs
        if run.is_complete(stages.TIMING.name)
        for number, loss in enumerate(run.results[stages.TIMING.name].program.losses)
    ]
    return pd.DataFrame(rows, columns=LOSSES.all_names)


def statistics(seconds: Sequence[float]) -> dict[str, float]:
    """STATISTICS of times in seconds (standard deviation with n - 1); without times, all but the number are NaN."""
    ms = np.asarray(seconds, dtype="float64") * 1e3
    if not len(ms):
        return {"n": 0} | dict.fromkeys(STATISTICS[1:], np.nan)
    std = ms.std(ddof=1) if len(ms) > 1 else np.nan
    return {"n": len(ms), "mean_ms": ms.mean(), "std_ms": std, "min_ms": ms.min(), "max_ms": ms.max()}


def statistics_of_processes(seconds: Sequence[Sequence[float]]) -> dict[str, float]:
    """STATISTICS and PROCESS_STATISTICS of the times of all processes, one sequence for each. `n` counts all steps. The
    mean is the geometric mean of the processes' means. The standard deviation is the root of the mean variance within a
    process. The spread is the standard deviation of the logarithms of the processes' means; NaN for one process."""
    processes = [statistics(times) for times in seconds if len(times)]
    if len(processes) < 2:
        single = processes[0] if processes else statistics(())
        return single | dict(zip(PROCESS_STATISTICS, (len(processes), np.nan), strict=True))
    by_name = {name: np.array([process[name] for process in processes]) for name in STATISTICS}
    log_means = np.log(by_name["mean_ms"])
    return {
        "n": int(by_name["n"].sum()), "mean_ms": np.exp(log_means.mean()),
        "std_ms": (by_name["std_ms"] ** 2).mean() ** 0.5,
        "min_ms": by_name["min_ms"].min(), "max_ms": by_name["max_ms"].max(),
        **dict(zip(PROCESS_STATISTICS, (len(processes), log_means.std(ddof=1)), strict=True)),
    }  # fmt: skip


def explained_error(precision: str) -> float:
    """The largest error, relative to fp64, that rounding in this precision explains."""
    return ROUNDINGS * UNIT_ROUNDOFF[precision] + SUMMATION_ERROR


def accuracy_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run whose first step was compared with fp64, or has a reason why not: its relative errors, the
    largest error that its precision explains, whether all errors are within that, and the reason."""
    rows = []
    for run in runs:
        accuracy = _accuracy(run)
        if accuracy is None:
            continue
        errors = {name: getattr(accuracy, name) for name in ERRORS}
        explained = explained_error(run.leading["precision"])
        known_errors = [error for error in errors.values() if error is not None]
        is_within = max(known_errors) <= explained if known_errors else None
        verdict = {"explained_error": explained, "within_precision": is_within, "reason": accuracy.reason}
        rows.append(run.leading | errors | verdict)
    return ACCURACY.table(rows)


def accuracy_notes(run: MeasuredRun) -> list[str]:
    """A note about each error of a run that its precision does not explain: the run may compute another function."""
    accuracy, precision = _accuracy(run), run.leading["precision"]
    explained, notes = explained_error(precision), []
    for name in ERRORS:
        error = getattr(accuracy, name, None)  # `accuracy` may be None, too
        if error is not None and error > explained:
            quantity = name.removesuffix("_error").replace("_", " ")
            notes.append(
                f"{quantity} off by {error:.1e} of fp64, and {precision} explains {explained:.1e}: this may be another"
                " function"
            )
    return notes


def _accuracy(run: MeasuredRun) -> Accuracy | None:
    """The accuracy of a run; None if it was not timed, or if its program ended without it."""
    timing = run.results.get(stages.TIMING.name)
    return timing.program.accuracy if timing and timing.program else None


PROCESS_COLUMNS = columns("""
    processes | int | | processes that timed it (timing: {processes: N})
    process_spread | float | | relative standard deviation between the means of these processes; empty for one
""")
TIMINGS = TableSpec(
    "timings",
    "One row per run and phase, without a profiler",
    columns(
        """
    phase | text | | step (by timeit.default_timer, including the wait for the device), or one phase of it
    n | int | | measured steps of all processes
    mean_ms | float | ms | mean over the measured steps; of several processes the geometric mean of their means
    std_ms | float | ms | standard deviation (n − 1) between the steps of a process
    min_ms | float | ms | shortest step
    max_ms | float | ms | longest step
""",
        PROCESS_COLUMNS,
        "status | text | | timing_status of the table runs; times are empty unless it is complete",
    ),
)
STEPS = TableSpec(
    "steps",
    "One row per run, phase and timed step of the first process; results/processes has those of others",
    columns("""
    phase | text | | step, or one phase of it
    step | int | | number of the measured step, from 0
    ms | float | ms | time of this step or phase, without a profiler
"""),
)
WARMUP_STEPS = TableSpec(
    "warmup_steps",
    "One row per run, phase and warm-up step of the timing",
    columns("""
    phase | text | | step, or one phase of it
    step | int | | number of the warm-up step, from 0; a model is compiled in an earlier step
    ms | float | ms | time of this step or phase, without a profiler
"""),
)
LOSSES = TableSpec(
    "losses",
    "One row per run and loss of the process without a profiler; on several GPUs, of the entire batch",
    columns("""
    number | int | | from 0: steps in order, warm-up first; in mode forward, of one separate pass
    loss | float | nat | mean cross-entropy
"""),
)
RANK_TIMES = TableSpec(
    "rank_times",
    "One row per run on several GPUs, rank and phase, without a profiler",
    columns(
        f"""
    rank | int | | number of the process, from 0; −1 for the slowest at every step
    phase | text | | step, one phase of it, or {WITHOUT_COMMUNICATION}: gradients are not reduced
    n | int | | measured steps of all processes; half as many without communication
    mean_ms | float | ms | as in timings
    std_ms | float | ms | as in timings
    min_ms | float | ms | shortest step
    max_ms | float | ms | longest step
""",
        PROCESS_COLUMNS,
    ),
)
ACCURACY = TableSpec(
    "accuracy",
    "One row per timed run: its first step compared with an eager one in fp64 with the same weights and tokens; on"
    " several GPUs of the entire batch",
    columns("""
    loss_error | float | | relative error of the loss
    logits_error | float | | relative error of the logits, in the Euclidean norm
    gradient_norm_error | float | | relative error of the norm of the reduced gradients, the largest of all ranks; \
        empty without them
    explained_error | float | | the largest error that rounding explains
    within_precision | bool | | whether all errors are within that
    reason | text | | why no error was computed: an fp64 run does not fit into memory, a custom model, or switched off
"""),
)
TABLES = (ACCURACY, RANK_TIMES, LOSSES, TIMINGS, STEPS, WARMUP_STEPS)
