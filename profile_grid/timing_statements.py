"""The sentences of answer (a): how long a forward pass takes, whether the profiler agrees, and else why not."""

from __future__ import annotations

import pandas as pd

from profile_grid.measured import MODES, Measured, extremes, of_all, places, stand_in
from profile_grid.quantities import count, interval, percent, ratio, significant, with_spread
from profile_grid.summary import FORWARD, MATCH_TOLERANCE

LAUNCH_BOUND_IDLE_SHARE = 0.2
SPREADS = 2
SHORT_KERNEL_US = 20.0  # launching one under a profiler takes the CPU about as long
TOLERANCE = f"{100 * MATCH_TOLERANCE:.0f} %"


def forward_time_sentences(of: Measured) -> list[str]:
    """(a) How long a forward pass takes, and whether the profiled one matches Python's timing."""
    rows = of.inference("forward_time")
    timed, profiled = rows.dropna(subset="unprofiled_step_ms"), rows.dropna(subset="step_wall_ms")
    both = timed[timed["run"].isin(profiled["run"])]
    subject = "one forward pass" if of.inference_mode == FORWARD else f"one {MODES[of.inference_mode]}"
    sentences = stand_in(of)
    if not timed.empty:
        takes = extremes(timed, "unprofiled_step_ms", _unprofiled)
        sentences.append(f"Timed by Python without a profiler, {subject} takes {takes}.")
    else:
        sentences.append("No run was timed without a profiler, so there is no Python timing to compare with.")
    if both.empty:
        return [*sentences, "No run has both a timing and a capture: whether they match cannot be said."]
    return [*sentences, *_match_sentences(both, of), *_asynchronous_sentence(profiled, of)]


def _unprofiled(row) -> str:
    return with_spread(row["unprofiled_step_ms"], row["unprofiled_step_std_ms"], "ms")


def _match_sentences(both: pd.DataFrame, of: Measured) -> list[str]:
    """Whether the profiled step matches Python's timing within the tolerance, else by how much not, and why."""
    ratios = interval(both["overhead_ratio"], ratio)
    off = both[~both["matches_python"].astype(bool)]
    if len(both) == 1:
        row = both.iloc[0]
        took = f"Under the profiler it takes {with_spread(row['step_wall_ms'], row['step_wall_std_ms'], 'ms')}"
        verdict = "matches" if off.empty else "does not match"
        factor = ratio(row["overhead_ratio"], row["overhead_ratio_std"])
        return [f"{took}, {factor} of that: it {verdict} within {TOLERANCE}.", *_reasons(off, of)]
    if off.empty:
        return [f"The profiled one matches that within {TOLERANCE} in {of_all(len(both), len(both))} ({ratios})."]
    if len(off) == len(both):
        verdict = f"The profiled one does not match that within {TOLERANCE}: it takes {ratios} as long"
        return [f"{verdict} in {of_all(len(off), len(both))}.", *_reasons(off, of)]
    elsewhere = interval(off["overhead_ratio"], ratio)
    matching = of_all(len(both) - len(off), len(both))
    return [
        f"The profiled one matches that within {TOLERANCE} in {matching}; not in {places(off)}, where it takes"
        f" {elsewhere} as long.",
        *_reasons(off, of),
    ]


def _reasons(off: pd.DataFrame, of: Measured) -> list[str]:
    """Why profiled and unprofiled differ, as far as the idle share and the length of the kernels show it."""
    words, sentences = of.words, []
    noisy = off[(off["overhead_ratio"] - 1).abs() <= SPREADS * off["overhead_ratio_std"]]
    clear = off[~off["run"].isin(noisy["run"])]
    unseen = clear[clear["idle_share"].isna()]
    shorter = clear[clear["idle_share"].notna() & (clear["overhead_ratio"] < 1)]
    longer = clear[clear["idle_share"].notna() & (clear["overhead_ratio"] >= 1)]
    idle = longer[longer["idle_share"] >= LAUNCH_BOUND_IDLE_SHARE]
    bound = idle[idle["mean_kernel_us"] <= SHORT_KERNEL_US]
    waiting = idle[idle["mean_kernel_us"] > SHORT_KERNEL_US]
    busy = longer[longer["idle_share"] < LAUNCH_BOUND_IDLE_SHARE]
    if not noisy.empty:
        sentences.append(
            f"{_there(noisy, off)} the difference is no larger than {SPREADS} standard deviations of the ratio:"
            " the steps scatter too much to say more."
        )
    if not bound.empty:
        kind = "launch-bound" if not of.machine.on_cpu else "the time passes between them"
        sentences.append(f"{_idling(bound, off, of)}: {kind}, so what the profiler adds to every {words.kernel} shows.")
    if not waiting.empty:
        sentences.append(
            f"{_idling(waiting, off, of)}: too long to be launch-bound; the tables do not show the reason."
        )
    if not busy.empty:
        share = interval(1 - busy["idle_share"], percent)
        sentences.append(
            f"{_there(busy, off)} {words.kernels} run during {share} of the profiled step: not launch-bound, so what"
            f" the profiler adds between {words.kernels} does not explain it."
        )
    if not shorter.empty:
        sentences.append(
            f"{_there(shorter, off)} the profiled step is the shorter one, which no profiler causes: the two processes"
            " ran under different conditions (clocks, temperature, other programs)."
        )
    if not unseen.empty:
        sentences.append(f"{_there(unseen, off)} no {words.kernels} were captured, so the reason cannot be seen.")
    return sentences


def _idling(rows: pd.DataFrame, off: pd.DataFrame, of: Measured) -> str:
    """Where, for how much of the step no kernel runs, how many there are in a pass and how long one takes."""
    kernels, each = interval(rows["forward_kernels"], count), interval(rows["mean_kernel_us"], _microseconds)
    return (
        f"{_there(rows, off)} no {of.words.kernel} runs during {interval(rows['idle_share'], percent)} of the profiled"
        f" step, and the {kernels} {of.words.kernels} of a forward pass take {each} each on average"
    )


def _there(some: pd.DataFrame, every: pd.DataFrame) -> str:
    return "There" if len(some) == len(every) else f"In {places(some)}"


def _microseconds(value: float) -> str:
    return f"{significant(value)} µs"


def _asynchronous_sentence(profiled: pd.DataFrame, of: Measured) -> list[str]:
    """That the range closes before the GPU is done, where it does."""
    early = profiled[profiled["forward_wall_ms"] < profiled["forward_gpu_span_ms"]]
    if early.empty or of.machine.on_cpu:
        return []
    return [
        f"The NVTX range `forward` is shorter than the GPU's work{_everywhere(early, profiled)}, since kernels are"
        " launched ahead of their execution: Python's timer compares with the step, which waits for the GPU."
    ]


def _everywhere(some: pd.DataFrame, every: pd.DataFrame) -> str:
    return f" in {of_all(len(some), len(every))}" if len(every) > 1 else ""
