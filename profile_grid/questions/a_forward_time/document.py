"""What the document of (a) says: sentences and tables."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, percent, ratio, significant, with_spread
from profile_grid.questions.a_forward_time.table import MATCH_TOLERANCE
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODEL, MODES
from profile_grid.tables.apart import sorted_values, split
from profile_grid.tables.cells import NOT_IN_GRID, run_table, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD
from profile_grid.tables.wording import extremes, in_some, of_all, places, stand_in

LAUNCH_BOUND_IDLE_SHARE = 0.2
SPREADS = 2
TOLERANCE = f"{100 * MATCH_TOLERANCE:.0f} %"


def sentences(measured: Measured) -> list[str]:
    """(a) How long a forward pass takes, and whether the profiled one matches Python's timing."""
    rows = measured.inference("forward_time")
    timed, profiled = rows.dropna(subset="unprofiled_step_ms"), rows.dropna(subset="step_wall_ms")
    both = timed[timed["run"].isin(profiled["run"])]
    subject = "one forward pass" if measured.inference_mode == FORWARD else f"one {MODES[measured.inference_mode]}"
    found = stand_in(measured)
    if not timed.empty:
        takes = extremes(timed, "unprofiled_step_ms", _unprofiled)
        found.append(f"Timed by Python without a profiler, {subject} takes {takes}.")
    else:
        found.append("No run was timed without a profiler, so there is no Python timing to compare with.")
    if both.empty:
        return [*found, "No run has both a timing and a capture: whether they match cannot be said."]
    return [*found, *_match_sentences(both, measured), *_asynchronous_sentence(profiled, measured)]


def _unprofiled(row) -> str:
    return with_spread(row["unprofiled_step_ms"], row["unprofiled_step_std_ms"], "ms")


def _match_sentences(both: pd.DataFrame, measured: Measured) -> list[str]:
    """Whether the profiled step matches Python's timing within the tolerance, else by how much not, and why."""
    ratios = interval(both["overhead_ratio"], ratio)
    off = both[~both["matches_python"].astype(bool)]
    if len(both) == 1:
        row = both.iloc[0]
        took = f"Under the profiler it takes {with_spread(row['step_wall_ms'], row['step_wall_std_ms'], 'ms')}"
        verdict = "matches" if off.empty else "does not match"
        factor = ratio(row["overhead_ratio"], row["overhead_ratio_std"])
        return [f"{took}, {factor} of that: it {verdict} within {TOLERANCE}.", *_reasons(off, measured)]
    if off.empty:
        return [f"The profiled one matches that within {TOLERANCE} in {of_all(len(both), len(both))} ({ratios})."]
    if len(off) == len(both):
        verdict = f"The profiled one does not match that within {TOLERANCE}: it takes {ratios} as long"
        return [f"{verdict} in {of_all(len(off), len(both))}.", *_reasons(off, measured)]
    elsewhere = interval(off["overhead_ratio"], ratio)
    matching = of_all(len(both) - len(off), len(both))
    return [
        f"The profiled one matches that within {TOLERANCE} in {matching}; not in {places(off)}, where it takes"
        f" {elsewhere} as long.",
        *_reasons(off, measured),
    ]


def _reasons(off: pd.DataFrame, measured: Measured) -> list[str]:
    """Why profiled and unprofiled differ, as far as the tables show it: one sentence per kind of reason."""
    explained = [(rows, text) for rows, text in _by_reason(off, measured) if not rows.empty]
    return [f"{_there(rows, off)} {text(rows, measured)}." for rows, text in explained]


def _by_reason(
    off: pd.DataFrame, measured: Measured
) -> list[tuple[pd.DataFrame, Callable[[pd.DataFrame, Measured], str]]]:
    """The rows by reason, each row once: scatter, no kernels to see, a shorter step, launches, waiting, a busy GPU."""
    noisy = (off["overhead_ratio"] - 1).abs() <= SPREADS * off["overhead_ratio_std"]
    unseen = ~noisy & off["idle_share"].isna()
    shorter = ~noisy & ~unseen & (off["overhead_ratio"] < 1)
    longer = ~noisy & ~unseen & ~shorter
    idle = longer & (off["idle_share"] >= LAUNCH_BOUND_IDLE_SHARE)
    launches = idle & (_launch_us(off) > off["mean_kernel_us"])
    return [
        (off[noisy], _scatter),
        (off[launches], _between_operators if measured.machine.on_cpu else _launch_bound),
        (off[idle & ~launches], _waiting),
        (off[longer & ~idle], _busy),
        (off[shorter], _shorter),
        (off[unseen], _unseen),
    ]


def _launch_us(rows: pd.DataFrame) -> pd.Series:
    """CPU time per kernel of the forward pass: the wall time of its range, which launches them, by their number."""
    return rows["forward_wall_ms"] * 1e3 / rows["forward_kernels"]


def _scatter(rows: pd.DataFrame, measured: Measured) -> str:
    return (
        f"the difference is no larger than {SPREADS} standard deviations of the ratio: the steps scatter too much to"
        " say more"
    )


def _launch_bound(rows: pd.DataFrame, measured: Measured) -> str:
    launch, run = _microseconds(_launch_us(rows)), _microseconds(rows["mean_kernel_us"])
    return (
        f"{_idle(rows, measured)}, and the {_kernels(rows)} kernels of a forward pass take the CPU {launch} each to"
        f" launch and the GPU {run} to run: launch-bound, so what the profiler adds to every launch shows"
    )


def _between_operators(rows: pd.DataFrame, measured: Measured) -> str:
    return (
        f"{_idle(rows, measured)}, and the {_kernels(rows)} operators of a forward pass take"
        f" {_microseconds(rows['mean_kernel_us'])} each: the rest passes between operators, where the profiler records"
    )


def _waiting(rows: pd.DataFrame, measured: Measured) -> str:
    launch, run = _microseconds(_launch_us(rows)), _microseconds(rows["mean_kernel_us"])
    return (
        f"{_idle(rows, measured)}, though launching a {measured.words.kernel} takes less ({launch}) than"
        f" running it ({run}): not launch-bound; the tables do not show the reason"
    )


def _busy(rows: pd.DataFrame, measured: Measured) -> str:
    kind = "" if measured.machine.on_cpu else ": not launch-bound"
    kernels = measured.words.kernels
    return (
        f"{kernels} run during {interval(1 - rows['idle_share'], percent)} of the profiled step{kind}, so what"
        f" the profiler adds between {kernels} does not explain it"
    )


def _shorter(rows: pd.DataFrame, measured: Measured) -> str:
    return (
        "the profiled step is the shorter one, which no profiler causes: the two processes ran under different"
        " conditions (clocks, temperature, other programs)"
    )


def _unseen(rows: pd.DataFrame, measured: Measured) -> str:
    return f"no {measured.words.kernels} were captured, so the reason cannot be seen"


def _idle(rows: pd.DataFrame, measured: Measured) -> str:
    return f"no {measured.words.kernel} runs during {interval(rows['idle_share'], percent)} of the profiled step"


def _kernels(rows: pd.DataFrame) -> str:
    return interval(rows["forward_kernels"], count)


def _there(some: pd.DataFrame, every: pd.DataFrame) -> str:
    return "There" if len(some) == len(every) else f"In {places(some)}"


def _microseconds(values: pd.Series) -> str:
    return f"{interval(values, significant)} µs"


def _asynchronous_sentence(profiled: pd.DataFrame, measured: Measured) -> list[str]:
    """That the range closes before the GPU is done, where it does."""
    early = profiled[profiled["forward_wall_ms"] < profiled["forward_gpu_span_ms"]]
    if early.empty or measured.machine.on_cpu:
        return []
    return [
        f"The NVTX range `forward` is shorter than the GPU's work{in_some(early, profiled)}, since kernels are"
        " launched ahead of their execution: Python's timer compares with the step, which waits for the GPU."
    ]


def forward_time_table(measured: Measured) -> MarkdownTable:
    """(a) The forward pass as Python's timer, NVTX and the GPU see it."""
    device = measured.words.device
    headings = (
        "Python, ms", "profiled step, ms", "ratio", "within 5 %", "NVTX `forward`, ms", f"{device} first to last, ms",
        f"{device} busy, ms", f"{device} idle in step",
    )  # fmt: skip

    def cells(row) -> tuple[str, ...]:
        python = with_spread(row.unprofiled_step_ms, row.unprofiled_step_std_ms)
        profiled = with_spread(row.step_wall_ms, row.step_wall_std_ms)
        return (
            python if known(row.unprofiled_step_ms) else status_word(row.timing_status),
            profiled if known(row.step_wall_ms) else status_word(row.capture_status),
            ratio(row.overhead_ratio, row.overhead_ratio_std),
            {True: "yes", False: "no"}.get(row.matches_python, ABSENT) if known(row.matches_python) else ABSENT,
            with_spread(row.forward_wall_ms, row.forward_wall_std_ms),
            with_spread(row.forward_gpu_span_ms, row.forward_gpu_span_std_ms),
            with_spread(row.forward_gpu_busy_ms, row.forward_gpu_busy_std_ms),
            percent(row.idle_share),
        )

    return run_table(
        measured, headings, {row.run: cells(row) for row in measured.inference("forward_time").itertuples()}
    )


def timing_pivots(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """Python's timing, models by contexts, with the title of each combination of further dimensions that vary; nothing
    where that would be a single row or column."""
    rows = measured.inference("forward_time")
    shown = (MODEL.key, CONTEXT_LENGTH.key)
    if any(rows[key].nunique() < 2 for key in shown):
        return []
    return [(title, _timing_pivot(part)) for title, part in split(rows, (*shown, "mode"))]


def _timing_pivot(rows) -> MarkdownTable:
    contexts, models = sorted_values(rows, CONTEXT_LENGTH.key), sorted_values(rows, MODEL.key)
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
