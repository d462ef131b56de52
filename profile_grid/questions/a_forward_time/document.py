"""What the document of (a) says: sentences and tables."""

import math

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, interval, known, percent, ratio, significant, with_spread
from profile_grid.questions.a_forward_time.table import MATCH_TOLERANCE
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODEL
from profile_grid.tables import evidence, pivoting
from profile_grid.tables.cells import NOT_IN_GRID, Part, run_table, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD
from profile_grid.tables.wording import PASSES, Claim, capital, mode_note, of_all, some_runs

ERRORS = 2  # standard errors by which the GPU is busy longer than the range that launches its work
TOLERANCE = f"{100 * MATCH_TOLERANCE:.0f} %"


def sentences(measured: Measured) -> list[str]:
    """(a) How long a forward pass takes, and how much longer it takes under the profiler."""
    rows = measured.inference("forward_time")
    timed, profiled = rows.dropna(subset="unprofiled_step_ms"), rows.dropna(subset="step_wall_ms")
    if timed.empty:
        return [Claim("Not answered: no run was timed without a profiler.", "missing"), *mode_note(measured)]
    compared = timed[timed["run"].isin(profiled["run"])]
    claims = [_step_times(timed, compared, measured), *mode_note(measured), *_profiler_effect(compared)]
    return [*claims, *_launch_bound(profiled, measured), *_launched_ahead(profiled, measured)]


def _step_times(timed: pd.DataFrame, compared: pd.DataFrame, measured: Measured) -> Claim:
    times, agreeing = timed["unprofiled_step_ms"], int(compared["matches_python"].astype(bool).sum())
    step = PASSES[measured.inference_mode].replace("the ", "a ")
    median = f" (median {significant(times.median())} ms)" if len(times) > 2 else ""
    profiler = "no run has both a timing and a capture"
    if len(compared):
        limit, count = ("at most", agreeing) if agreeing else ("more than", len(compared))
        runs = of_all(count, len(compared), "run")
        profiler = f"under the profiler, the time differs by {limit} {TOLERANCE} in {runs}"
    if len(compared) == 1:
        profiler = f"under the profiler, it takes {significant(compared['overhead_ratio'].iloc[0])} times as long"
    return Claim(
        "{step} takes {times} ms{median}; {profiler}.", "counted",
        step=capital(step), times=interval(times, significant), median=median, profiler=profiler,
    )  # fmt: skip


def _profiler_effect(compared: pd.DataFrame) -> list[Claim]:
    """The number of runs whose profiled step differs by more than this, and whether two processes could differ as
    much."""
    different, is_unclear = _different(compared)
    clear = "The profiler slows {runs}: a step takes {ratios} times as long."
    unclear = "In {runs}, a step takes {ratios} times as long under the profiler; two processes may differ by as much."
    if len(compared) == 1 and not is_unclear.any():
        return []  # the lead says it
    return [
        Claim(text, rule, runs=some_runs(rows, compared), ratios=interval(rows["overhead_ratio"], significant))
        for text, rule, rows in (
            (clear, "difference", different[~is_unclear]), (unclear, "unclear", different[is_unclear]),
        ) if len(rows)
    ]  # fmt: skip


def _different(compared: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """The runs whose profiled step differs by more than MATCH_TOLERANCE, and whether two processes could differ as
    much."""
    rows = compared[~compared["matches_python"].astype(bool)]
    error = rows["process_spread"] * (1 + 1 / rows["processes"]) ** 0.5  # one process is profiled
    freedom = (rows["processes"] - 1).where(rows["processes"] > 1, math.inf)
    return rows, evidence.ratio_verdicts(rows["overhead_ratio"], error, freedom)["verdict"] == evidence.UNCLEAR


def _launch_bound(profiled: pd.DataFrame, measured: Measured) -> list[Claim]:
    """The launch-bound runs; on a CPU there are no launches."""
    launch_us = _launch_us(profiled)
    bound = profiled[evidence.is_launch_bound(profiled["idle_share"], launch_us, profiled["mean_kernel_us"])]
    if measured.machine.on_cpu or profiled["idle_share"].isna().all():
        return []
    if bound.empty:
        return [Claim("No run is launch-bound under the profiler: the GPU idles {share} of the step.", "counted",
                      share=interval(profiled["idle_share"], percent))]  # fmt: skip
    return [
        Claim(
            "{runs} {are} launch-bound under the profiler: the GPU idles {idle} of the step, since launching a"
            " kernel takes {launch} µs, running it {kernel} µs.",
            "counted", runs=capital(of_all(len(bound), len(profiled), "run")), are="is" if len(bound) == 1 else "are",
            idle=interval(bound["idle_share"], percent), launch=interval(launch_us[bound.index], significant),
            kernel=interval(bound["mean_kernel_us"], significant),
        )
    ]  # fmt: skip


def _launch_us(profiled: pd.DataFrame) -> pd.Series:
    return profiled["forward_wall_ms"] * 1e3 / profiled["forward_kernels"]


def _launched_ahead(profiled: pd.DataFrame, measured: Measured) -> list[Claim]:
    """In how many runs the range `forward` is clearly shorter than the work that it launches."""
    captured = profiled.dropna(subset="forward_gpu_busy_ms")
    if captured.empty or measured.machine.on_cpu:
        return []
    squares = captured["forward_wall_std_ms"].fillna(0.0) ** 2 + captured["forward_gpu_busy_std_ms"].fillna(0.0) ** 2
    error = (squares / captured["steps_captured"].clip(lower=1)) ** 0.5
    is_ahead = captured["forward_gpu_busy_ms"] - captured["forward_wall_ms"] > ERRORS * error
    return [
        Claim(
            "In {runs}, the NVTX range `forward` is shorter than the GPU's work: the host launches kernels ahead, and"
            " unlike Python's timer, the range does not wait for them.",
            "counted", runs=of_all(int(is_ahead.sum()), len(captured), "run"),
        )
    ] if is_ahead.any() else []  # fmt: skip


def tables(measured: Measured) -> list[Part]:
    """(a) Python's timing, models by contexts; the forward pass as Python's timer, NVTX and the GPU see it."""
    timed, captured = measured.steps
    step = capital(PASSES[measured.inference_mode])
    pivots = [
        (f"{step} by Python's timer, without a profiler, ms{', ' if title else ''}{title}", table)
        for title, table in _timing_pivots(measured)
    ]
    of_phase = "" if measured.inference_mode == FORWARD else "; NVTX, first to last and busy are of its forward phase"
    both = f"{step} by Python's timer ({timed} steps) and under the profiler ({captured} steps){of_phase}"
    return [*pivots, (both, _forward_time_table(measured))]


def _forward_time_table(measured: Measured) -> MarkdownTable:
    device, rows = measured.words.device, measured.inference("forward_time")
    different, is_unclear = _different(rows.dropna(subset=["unprofiled_step_ms", "step_wall_ms"]))
    unclear = set(different.loc[is_unclear, "run"])
    launch_us = _launch_us(rows)
    bound = set(rows.loc[evidence.is_launch_bound(rows["idle_share"], launch_us, rows["mean_kernel_us"]), "run"])
    headings = (
        "Python, ms", "captured step, ms", "ratio", f"within {TOLERANCE}", "NVTX `forward`, ms",
        f"{device} first to last, ms", f"{device} busy, ms", f"{device} idle in step",
    )  # fmt: skip

    def cells(row) -> tuple[str, ...]:
        python = with_spread(row.unprofiled_step_ms, row.unprofiled_step_std_ms)
        profiled = with_spread(row.step_wall_ms, row.step_wall_std_ms)
        return (
            python if known(row.unprofiled_step_ms) else status_word(row.timing_status),
            profiled if known(row.step_wall_ms) else status_word(row.capture_status),
            ratio(row.overhead_ratio, row.overhead_ratio_std),
            _match(row.matches_python) + (" ?" if row.run in unclear else ""),
            with_spread(row.forward_wall_ms, row.forward_wall_std_ms),
            with_spread(row.forward_gpu_span_ms, row.forward_gpu_span_std_ms),
            with_spread(row.forward_gpu_busy_ms, row.forward_gpu_busy_std_ms),
            percent(row.idle_share) + (", launch-bound" if row.run in bound and not measured.machine.on_cpu else ""),
        )

    return run_table(measured, headings, {row.run: cells(row) for row in rows.itertuples()})


def _match(matches: bool | None) -> str:
    return ABSENT if not known(matches) else "yes" if matches else "no"


def _timing_pivots(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """Python's timing, models by contexts, with the title of each combination of further dimensions that vary; nothing
    where that would be a single row or column."""
    rows = measured.inference("forward_time")
    dimensions = (MODEL.key, CONTEXT_LENGTH.key)
    if any(rows[key].nunique() < 2 for key in dimensions):
        return []
    return [(title, _timing_pivot(part)) for title, part in pivoting.split(rows, (*dimensions, "mode"))]


def _timing_pivot(rows) -> MarkdownTable:
    contexts, models = pivoting.sorted_values(rows, CONTEXT_LENGTH.key), pivoting.sorted_values(rows, MODEL.key)
    cells = {
        (row.model, row.context_length): with_spread(row.unprofiled_step_ms, row.unprofiled_step_std_ms)
        if known(row.unprofiled_step_ms)
        else status_word(row.timing_status)
        for row in rows.itertuples()
    }
    lines = tuple(
        (escaped(model), *(cells.get((model, context), NOT_IN_GRID) for context in contexts)) for model in models
    )
    headings = (CONTEXT_LENGTH.title(context) for context in contexts)
    return MarkdownTable((MODEL.heading, *headings), lines, first_right=1)
