"""What the document of (a) says: sentences and tables."""

import math

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import interval, known, percent, ratio, significant, with_spread, yes_or_no
from profile_grid.questions.a_forward_time.table import MATCH_TOLERANCE
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODEL
from profile_grid.tables import evidence, pivoting
from profile_grid.tables.cells import NOT_IN_GRID, Part, run_table, status_word, titled
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD
from profile_grid.tables.wording import PASSES, Claim, capital, median_note, of_all, some_runs

MIN_STANDARD_ERRORS = 2  # the GPU is clearly busy for longer than a range takes if the difference is larger than these
NUMBER_WORDS = {2: "two", 3: "three"}  # of MIN_STANDARD_ERRORS, since the template of a Claim has no digits
PROFILED_TIMES = ("step_wall", "forward_wall", "forward_gpu_span", "forward_gpu_busy")  # columns without their unit
TOLERANCE_TEXT = f"{100 * MATCH_TOLERANCE:.0f} %"


def sentences(measured: Measured) -> list[Claim]:
    """(a) How long a forward pass takes, alone and under the profiler; then launch-bound runs, and launching ahead."""
    runs = measured.inference("forward_time")
    timed_runs, captured_runs = runs.dropna(subset="unprofiled_step_ms"), runs.dropna(subset="step_wall_ms")
    if timed_runs.empty:
        return [Claim("Not answered: no run was timed without a profiler.", "missing"), *_mode_note(measured)]
    compared_runs = timed_runs.dropna(subset="step_wall_ms")
    claims = [_step_times(timed_runs, compared_runs, measured), *_mode_note(measured)]
    claims += _profiler_effect(compared_runs)
    return [*claims, *_launch_bound(captured_runs, measured), *_launches_ahead(captured_runs, measured)]


def _mode_note(measured: Measured) -> list[Claim]:
    """If no run measured the forward pass alone: which numbers are of the whole step instead."""
    if measured.inference_mode == FORWARD:
        return []
    text = (
        "No run measured the forward pass alone: times and idle time of a step are those of {step}; the other numbers"
        " are of its forward phase."
    )
    return [Claim(text, "missing", step=PASSES[measured.inference_mode])]


def _step_times(timed_runs: pd.DataFrame, compared_runs: pd.DataFrame, measured: Measured) -> Claim:
    """The times of a step without a profiler, and in how many runs the profiled step takes as long, within the
    tolerance."""
    times_ms, run_count = timed_runs["unprofiled_step_ms"], len(compared_runs)
    matching = int(compared_runs["matches_python"].astype(bool).sum())
    comparison = "no run has both a timing and a capture"
    if run_count == 1:
        factor = significant(compared_runs["overhead_ratio"].iloc[0])
        comparison = f"under the profiler, it takes {factor} times as long"
    elif run_count:
        limit = f"at most {TOLERANCE_TEXT}" if matching else f"more than {TOLERANCE_TEXT}"
        runs = of_all(matching or run_count, run_count, "run")  # if none matches, the time differs by more in all
        comparison = f"under the profiler, the time differs by {limit} in {runs}"
    return Claim(
        "{step} takes {times} ms{median}; {profiler}.", "counted",
        step=capital(PASSES[measured.inference_mode].replace("the ", "a ")), times=interval(times_ms, significant),
        median=median_note(times_ms, lambda ms: f"{significant(ms)} ms"), profiler=comparison,
    )  # fmt: skip


def _profiler_effect(compared_runs: pd.DataFrame) -> list[Claim]:
    """Sentences on the runs whose profiled step differs by more than the tolerance: those that are clearly slower or
    faster, and those in which two processes may differ by as much."""
    runs = _runs_beyond_tolerance(compared_runs)
    is_unclear, is_slower = runs["is_unclear"], runs["overhead_ratio"] > 1
    if len(compared_runs) == 1 and not is_unclear.any():
        return []  # the lead says it

    def claims(is_meant: pd.Series, rule: str, text: str) -> list[Claim]:  # one, or none without such runs
        ratios = interval(runs["overhead_ratio"][is_meant], significant)
        names = some_runs(runs[is_meant], compared_runs)
        return [Claim(text, rule, runs=names, ratios=ratios)] if is_meant.any() else []

    longer = "a step takes {ratios} times as long"
    unclear = "In {runs}, " + longer + " under the profiler; variation between processes may explain it."
    return [
        *claims(~is_unclear & is_slower, "difference", "The profiler slows {runs}: " + longer + "."),
        *claims(~is_unclear & ~is_slower, "difference", "Under the profiler, " + longer + " in {runs}."),
        *claims(is_unclear, "unclear", unclear),
    ]


def _runs_beyond_tolerance(compared_runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose profiled step differs by more than MATCH_TOLERANCE. `is_unclear`: two processes of the same work
    may differ by as much."""
    runs = compared_runs[~compared_runs["matches_python"].astype(bool)]
    spread, processes = runs["process_spread"], runs["processes"]
    # the variance of the mean of the timed processes, and that of the single profiled process
    error = (spread**2 / processes + spread**2) ** 0.5
    freedom = (processes - 1).where(processes > 1, math.inf)  # the spread of a single process is assumed
    verdict = evidence.ratio_verdicts(runs["overhead_ratio"], error, freedom)["verdict"]
    return runs.assign(is_unclear=verdict == evidence.UNCLEAR)


def _launch_bound(captured_runs: pd.DataFrame, measured: Measured) -> list[Claim]:
    """How many runs are launch-bound, or that none is. On a CPU, which has no launches, there is no sentence."""
    idle_share = captured_runs["idle_share"]
    if measured.machine.on_cpu or idle_share.isna().all():
        return []
    bound_runs = captured_runs[_is_launch_bound(captured_runs)]
    if bound_runs.empty:
        return [Claim("No run is launch-bound under the profiler: the GPU idles {share} of the step.", "counted",
                      share=interval(idle_share, percent))]  # fmt: skip
    return [
        Claim(
            "{runs} {are} launch-bound under the profiler: the GPU idles {idle} of the step, because launching a"
            " kernel takes {launch} µs, longer than running it ({kernel} µs).",
            "counted", runs=capital(of_all(len(bound_runs), len(captured_runs), "run")),
            are="is" if len(bound_runs) == 1 else "are", idle=interval(bound_runs["idle_share"], percent),
            launch=interval(_launch_us(bound_runs), significant),
            kernel=interval(bound_runs["mean_kernel_us"], significant),
        )
    ]  # fmt: skip


def _is_launch_bound(runs: pd.DataFrame) -> pd.Series:
    return evidence.is_launch_bound(runs["idle_share"], _launch_us(runs), runs["mean_kernel_us"])


def _launch_us(runs: pd.DataFrame) -> pd.Series:
    """The time of a launch in µs by run: that of the range `forward` divided by its kernels."""
    return runs["forward_wall_ms"] * 1e3 / runs["forward_kernels"]


def _launches_ahead(captured_runs: pd.DataFrame, measured: Measured) -> list[Claim]:
    """In how many runs the range `forward` is clearly shorter than the work that it launches."""
    if measured.machine.on_cpu:
        return []
    runs = captured_runs.dropna(subset="forward_gpu_busy_ms")
    variance = runs["forward_wall_std_ms"].fillna(0.0) ** 2 + runs["forward_gpu_busy_std_ms"].fillna(0.0) ** 2
    standard_error_ms = (variance / runs["steps_captured"].clip(lower=1)) ** 0.5
    is_ahead = runs["forward_gpu_busy_ms"] - runs["forward_wall_ms"] > MIN_STANDARD_ERRORS * standard_error_ms
    return [
        Claim(
            "In {runs}, the NVTX range `forward` is shorter than the GPU's busy time (by"
            f" {NUMBER_WORDS[MIN_STANDARD_ERRORS]} standard errors or more): the host launches kernels ahead, and"
            " unlike Python's timer, the range does not wait for them.",
            "counted", runs=of_all(int(is_ahead.sum()), len(runs), "run"),
        )
    ] if is_ahead.any() else []  # fmt: skip


def tables(measured: Measured) -> list[Part]:
    """(a) Python's timing, models by contexts; the forward pass as Python's timer, NVTX and the GPU see it."""
    timed_steps, captured_steps = measured.steps
    step = capital(PASSES[measured.inference_mode])
    pivots = titled(f"{step} by Python's timer, without a profiler, ms", _timing_pivots(measured))
    introduction = f"{step} by Python's timer ({timed_steps} steps) and under the profiler ({captured_steps} steps)"
    if measured.inference_mode != FORWARD:
        introduction += "; NVTX, first to last and busy are of its forward phase"
    return [*pivots, (introduction, _forward_time_table(measured))]


def _forward_time_table(measured: Measured) -> MarkdownTable:
    device, rows = measured.words.device, measured.inference("forward_time")
    differing_runs = _runs_beyond_tolerance(rows.dropna(subset=["unprofiled_step_ms", "step_wall_ms"]))
    rows = rows.assign(
        is_bound=_is_launch_bound(rows) & (not measured.machine.on_cpu),
        is_unclear=rows["run"].isin(differing_runs.loc[differing_runs["is_unclear"], "run"]),
    )
    headings = (
        "Python, ms", "captured step, ms", "ratio", f"within {TOLERANCE_TEXT}", "NVTX `forward`, ms",
        f"{device} first to last, ms", f"{device} busy, ms", f"{device} idle in step",
    )  # fmt: skip

    def cells(row: dict) -> tuple[str, ...]:
        times = {name: with_spread(row[f"{name}_ms"], row[f"{name}_std_ms"]) for name in PROFILED_TIMES}
        return (
            _unprofiled_step(row),
            times["step_wall"] if known(row["step_wall_ms"]) else status_word(row["capture_status"]),
            ratio(row["overhead_ratio"], row["overhead_ratio_std"]),
            yes_or_no(row["matches_python"]) + (" ?" if row["is_unclear"] else ""),
            times["forward_wall"], times["forward_gpu_span"], times["forward_gpu_busy"],
            percent(row["idle_share"]) + (", launch-bound" if row["is_bound"] else ""),
        )  # fmt: skip

    return run_table(measured, headings, {row["run"]: cells(row) for row in rows.to_dict("records")})


def _unprofiled_step(row: dict) -> str:
    """Python's timing of the step with its spread, or why there is none."""
    if not known(row["unprofiled_step_ms"]):
        return status_word(row["timing_status"])
    return with_spread(row["unprofiled_step_ms"], row["unprofiled_step_std_ms"])


def _timing_pivots(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """Python's timing as (title, table): a line per model and a column per context, in a table for each combination of
    the further dimensions that vary. Empty if there is only one model or context."""
    rows = measured.inference("forward_time")
    dimensions = (MODEL.key, CONTEXT_LENGTH.key)
    if any(rows[key].nunique() < 2 for key in dimensions):
        return []
    return [(title, _timing_pivot(table_rows)) for title, table_rows in pivoting.split(rows, (*dimensions, "mode"))]


def _timing_pivot(rows: pd.DataFrame) -> MarkdownTable:
    contexts, models = pivoting.sorted_values(rows, CONTEXT_LENGTH.key), pivoting.sorted_values(rows, MODEL.key)
    wide = pivoting.pivoted_texts(rows, [MODEL.key], CONTEXT_LENGTH.key, _unprofiled_step, NOT_IN_GRID)
    lines = tuple((escaped(model), *wide.loc[model, contexts]) for model in models)
    return MarkdownTable((MODEL.heading, *map(CONTEXT_LENGTH.title, contexts)), lines, first_right=1)
