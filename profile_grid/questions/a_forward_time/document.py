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

MIN_STANDARD_ERRORS = 2  # by which the GPU has to be busy longer than the range that launches its work
PROFILED_TIMES = ("step_wall", "forward_wall", "forward_gpu_span", "forward_gpu_busy")
TOLERANCE = f"{100 * MATCH_TOLERANCE:.0f} %"


def sentences(measured: Measured) -> list[Claim]:
    """(a) How long a forward pass takes, alone and under the profiler; then launch-bound runs, and launching ahead."""
    rows = measured.inference("forward_time")
    timed, profiled = rows.dropna(subset="unprofiled_step_ms"), rows.dropna(subset="step_wall_ms")
    if timed.empty:
        return [Claim("Not answered: no run was timed without a profiler.", "missing"), *_stand_in(measured)]
    both = timed[timed["run"].isin(profiled["run"])]
    claims = [_step_times(timed, both, measured), *_stand_in(measured), *_profiler_effect(both)]
    return [*claims, *_launch_bound(profiled, measured), *_launches_ahead(profiled, measured)]


def _stand_in(measured: Measured) -> list[Claim]:
    """Which numbers are of the whole step, if no run measured the forward pass alone."""
    if measured.inference_mode == FORWARD:
        return []
    text = (
        "No run measured the forward pass alone: times and idle time of a step are those of {step}; the other numbers"
        " are of its forward phase."
    )
    return [Claim(text, "missing", step=PASSES[measured.inference_mode])]


def _step_times(timed: pd.DataFrame, both: pd.DataFrame, measured: Measured) -> Claim:
    """The times of a step without a profiler, and in how many runs they are the same under it, within the tolerance."""
    times, agreeing = timed["unprofiled_step_ms"], int(both["matches_python"].astype(bool).sum())
    step = PASSES[measured.inference_mode].replace("the ", "a ")
    median = median_note(times, lambda ms: f"{significant(ms)} ms")
    profiler = "no run has both a timing and a capture"
    if len(both) == 1:
        profiler = f"under the profiler, it takes {significant(both['overhead_ratio'].iloc[0])} times as long"
    elif len(both):
        limit = "at most" if agreeing else "more than"
        runs = of_all(agreeing or len(both), len(both), "run")
        profiler = f"under the profiler, the time differs by {limit} {TOLERANCE} in {runs}"
    return Claim(
        "{step} takes {times} ms{median}; {profiler}.", "counted",
        step=capital(step), times=interval(times, significant), median=median, profiler=profiler,
    )  # fmt: skip


def _profiler_effect(both: pd.DataFrame) -> list[Claim]:
    """The runs whose profiled step differs by more than the tolerance: those in which this is clear, and those in which
    two processes may differ by as much."""
    rows = _beyond_tolerance(both)
    if len(both) == 1 and not rows["is_unclear"].any():
        return []  # the lead says it
    is_slower, longer = rows["overhead_ratio"] > 1, "a step takes {ratios} times as long"
    of_texts = (
        (f"The profiler slows {{runs}}: {longer}.", "difference", ~rows["is_unclear"] & is_slower),
        (f"Under the profiler, {longer} in {{runs}}.", "difference", ~rows["is_unclear"] & ~is_slower),
        (f"In {{runs}}, {longer} under the profiler; variation between processes may explain it.", "unclear",
         rows["is_unclear"]),
    )  # fmt: skip
    return [
        Claim(text, rule, runs=some_runs(rows[mask], both), ratios=interval(rows["overhead_ratio"][mask], significant))
        for text, rule, mask in of_texts
        if mask.any()
    ]


def _beyond_tolerance(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose profiled step differs by more than MATCH_TOLERANCE; `is_unclear` if two processes may differ by as
    much."""
    rows = runs[~runs["matches_python"].astype(bool)]
    error = rows["process_spread"] * (1 + 1 / rows["processes"]) ** 0.5  # one process is profiled
    freedom = (rows["processes"] - 1).where(rows["processes"] > 1, math.inf)
    verdict = evidence.ratio_verdicts(rows["overhead_ratio"], error, freedom)["verdict"]
    return rows.assign(is_unclear=verdict == evidence.UNCLEAR)


def _launch_bound(profiled: pd.DataFrame, measured: Measured) -> list[Claim]:
    """How many runs are launch-bound, or that none is; nothing on a CPU, where there are no launches."""
    launch_us = _launch_us(profiled)
    bound = profiled[evidence.is_launch_bound(profiled["idle_share"], launch_us, profiled["mean_kernel_us"])]
    if measured.machine.on_cpu or profiled["idle_share"].isna().all():
        return []
    if bound.empty:
        return [Claim("No run is launch-bound under the profiler: the GPU idles {share} of the step.", "counted",
                      share=interval(profiled["idle_share"], percent))]  # fmt: skip
    return [
        Claim(
            "{runs} {are} launch-bound under the profiler: the GPU idles {idle} of the step, because launching a"
            " kernel takes {launch} µs, longer than running it ({kernel} µs).",
            "counted", runs=capital(of_all(len(bound), len(profiled), "run")), are="is" if len(bound) == 1 else "are",
            idle=interval(bound["idle_share"], percent), launch=interval(launch_us[bound.index], significant),
            kernel=interval(bound["mean_kernel_us"], significant),
        )
    ]  # fmt: skip


def _launch_us(profiled: pd.DataFrame) -> pd.Series:
    """The time of a launch in µs by run: that of the range `forward` divided by its kernels."""
    return profiled["forward_wall_ms"] * 1e3 / profiled["forward_kernels"]


def _launches_ahead(profiled: pd.DataFrame, measured: Measured) -> list[Claim]:
    """In how many runs the range `forward` is clearly shorter than the work that it launches."""
    captured = profiled.dropna(subset="forward_gpu_busy_ms")
    if captured.empty or measured.machine.on_cpu:
        return []
    squares = captured["forward_wall_std_ms"].fillna(0.0) ** 2 + captured["forward_gpu_busy_std_ms"].fillna(0.0) ** 2
    error = (squares / captured["steps_captured"].clip(lower=1)) ** 0.5
    is_ahead = captured["forward_gpu_busy_ms"] - captured["forward_wall_ms"] > MIN_STANDARD_ERRORS * error
    return [
        Claim(
            "In {runs}, the NVTX range `forward` is shorter than the GPU's busy time (by two standard errors or more):"
            " the host launches kernels ahead, and unlike Python's timer, the range does not wait for them.",
            "counted", runs=of_all(int(is_ahead.sum()), len(captured), "run"),
        )
    ] if is_ahead.any() else []  # fmt: skip


def tables(measured: Measured) -> list[Part]:
    """(a) Python's timing, models by contexts; the forward pass as Python's timer, NVTX and the GPU see it."""
    timed, captured = measured.steps
    step = capital(PASSES[measured.inference_mode])
    pivots = titled(f"{step} by Python's timer, without a profiler, ms", _timing_pivots(measured))
    scope = "" if measured.inference_mode == FORWARD else "; NVTX, first to last and busy are of its forward phase"
    introduction = f"{step} by Python's timer ({timed} steps) and under the profiler ({captured} steps){scope}"
    return [*pivots, (introduction, _forward_time_table(measured))]


def _forward_time_table(measured: Measured) -> MarkdownTable:
    device, rows = measured.words.device, measured.inference("forward_time")
    differing = _beyond_tolerance(rows.dropna(subset=["unprofiled_step_ms", "step_wall_ms"]))
    unclear = set(differing.loc[differing["is_unclear"], "run"])
    launch_us = _launch_us(rows)
    is_bound = evidence.is_launch_bound(rows["idle_share"], launch_us, rows["mean_kernel_us"])
    bound = set() if measured.machine.on_cpu else set(rows.loc[is_bound, "run"])
    headings = (
        "Python, ms", "captured step, ms", "ratio", f"within {TOLERANCE}", "NVTX `forward`, ms",
        f"{device} first to last, ms", f"{device} busy, ms", f"{device} idle in step",
    )  # fmt: skip

    def cells(row: dict) -> tuple[str, ...]:
        times = {name: with_spread(row[f"{name}_ms"], row[f"{name}_std_ms"]) for name in PROFILED_TIMES}
        return (
            _unprofiled_step(row),
            times["step_wall"] if known(row["step_wall_ms"]) else status_word(row["capture_status"]),
            ratio(row["overhead_ratio"], row["overhead_ratio_std"]),
            yes_or_no(row["matches_python"]) + (" ?" if row["run"] in unclear else ""),
            times["forward_wall"], times["forward_gpu_span"], times["forward_gpu_busy"],
            percent(row["idle_share"]) + (", launch-bound" if row["run"] in bound else ""),
        )  # fmt: skip

    return run_table(measured, headings, {row["run"]: cells(row) for row in rows.to_dict("records")})


def _unprofiled_step(row: dict) -> str:
    if not known(row["unprofiled_step_ms"]):
        return status_word(row["timing_status"])
    return with_spread(row["unprofiled_step_ms"], row["unprofiled_step_std_ms"])


def _timing_pivots(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(title, table) for each combination of further dimensions that vary: Python's timing, models by contexts. Empty
    if there is only one model or context."""
    rows = measured.inference("forward_time")
    dimensions = (MODEL.key, CONTEXT_LENGTH.key)
    if any(rows[key].nunique() < 2 for key in dimensions):
        return []
    return [(title, _timing_pivot(part)) for title, part in pivoting.split(rows, (*dimensions, "mode"))]


def _timing_pivot(rows: pd.DataFrame) -> MarkdownTable:
    contexts, models = pivoting.sorted_values(rows, CONTEXT_LENGTH.key), pivoting.sorted_values(rows, MODEL.key)
    wide = pivoting.pivoted_texts(rows, [MODEL.key], CONTEXT_LENGTH.key, _unprofiled_step, NOT_IN_GRID)
    lines = tuple((escaped(model), *wide.loc[model, contexts]) for model in models)
    return MarkdownTable((MODEL.heading, *map(CONTEXT_LENGTH.title, contexts)), lines, first_right=1)
