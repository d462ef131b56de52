"""The sentences of answer (a): how long a forward pass takes, whether the profiler agrees, and else why not."""

from __future__ import annotations

import pandas as pd

from profile_grid.measured import MODES, Measured, extremes, of_all, places, stand_in
from profile_grid.quantities import interval, percent, ratio, significant, with_spread
from profile_grid.summary import FORWARD, MATCH_TOLERANCE

LAUNCH_BOUND_IDLE_SHARE = 0.2
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
        told = f"{took}, {ratio(row['overhead_ratio'], row['overhead_ratio_std'])} of that: it {verdict} within {TOLERANCE}."
        return [told, *_reasons(off, of)]
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
    unseen = off[off["idle_share"].isna()]
    shorter = off[off["idle_share"].notna() & (off["overhead_ratio"] < 1)]
    longer = off[off["idle_share"].notna() & (off["overhead_ratio"] >= 1)]
    bound = longer[longer["idle_share"] >= LAUNCH_BOUND_IDLE_SHARE]
    busy = longer[longer["idle_share"] < LAUNCH_BOUND_IDLE_SHARE]
    if not bound.empty:
        idle, each = interval(bound["idle_share"], percent), interval(bound["mean_kernel_us"], _microseconds)
        kind = "launch-bound" if not of.machine.on_cpu else "bound by Python and the profiler between operators"
        sentences.append(
            f"{_there(bound, off)} the {words.device} idles for {idle} of the profiled step and {words.kernels} take"
            f" {each} on average: {kind}, so what the profiler adds to every {words.kernel} shows."
        )
    if not busy.empty:
        sentences.append(
            f"{_there(busy, off)} the {words.device} is busy for {interval(1 - busy['idle_share'], percent)} of the"
            f" profiled step: not launch-bound, so what the profiler adds to launches does not explain it."
        )
    if not shorter.empty:
        sentences.append(
            f"{_there(shorter, off)} the profiled step is the shorter one, which no profiler causes: the two processes"
            " ran under different conditions (clocks, temperature, other programs)."
        )
    if not unseen.empty:
        sentences.append(f"{_there(unseen, off)} no {words.kernels} were captured, so the reason cannot be seen.")
    return sentences


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
