"""The sentences of (g): how much faster a compiled model is, what became of its kernels, and when compiling pays."""

from __future__ import annotations

import pandas as pd

from profile_grid.quantities import count, counted, interval, percent, significant
from profile_grid.questions.g_compile.parts_sentences import fused_sentences, matmuls_sentence
from profile_grid.study.dimensions import COMPILE
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.measured import Measured
from profile_grid.tables.ratio_sentences import gain_sentences, ideal_sentence, without
from profile_grid.tables.wording import capital, extremes, listed, places

BASE = COMPILE.name_of(COMPILE.default)
NO_PAIR = f"Not answered: no two timed runs differ in {COMPILE.heading} alone, with one that is {BASE} among them."


def sentences(measured: Measured) -> list[str]:
    """(g) For the whole model and for attention alone: speed-ups, kernels before and after, and the cost."""
    times = measured.tables["compile_times"]
    if times.empty:
        return [NO_PAIR]
    found = []
    for value in sorted_values(times, COMPILE.key):
        own, cost, kernels, parts = (_of(measured, name, value) for name in ("times", "cost", "kernels", "parts"))
        found += [*gain_sentences(own, COMPILE, BASE), *_kernels(kernels, measured), *fused_sentences(parts, measured)]
        found += _cost(without(cost, COMPILE))
    found += [*_graphs(measured.tables["compile_cost"]), *ideal_sentence(times, BASE)]
    return [*found, *matmuls_sentence(measured.tables["compile_parts"])]


def _of(measured: Measured, name: str, value: str) -> pd.DataFrame:
    table = measured.tables[f"compile_{name}"]
    return table[table[COMPILE.key] == value]


def _kernels(rows: pd.DataFrame, measured: Measured) -> list[str]:
    """How many kernels of a step are left, and the families of classes that lost and won most GPU time."""
    if rows.empty:
        return []
    sums = rows.groupby("run", sort=False)[["invocations", "base_invocations", "gpu_time_ms", "base_gpu_time_ms"]].sum()
    left = interval(sums["invocations"] / sums["base_invocations"], percent)
    whole = interval(sums["gpu_time_ms"] / sums["base_gpu_time_ms"], percent)
    words = measured.words
    return [
        f"{capital(left)} of the {words.kernels} of a step are left, and {whole} of their {words.time}.",
        *_moved(rows),
    ]


def _moved(rows: pd.DataFrame) -> list[str]:
    """The family that lost most time, and the one that won most, over all runs."""
    change = (rows["gpu_time_ms"] - rows["base_gpu_time_ms"]).groupby(rows["class"]).sum()
    told = [(change.idxmin(), "lose most of it", change.min() < 0), (change.idxmax(), "take more", change.max() > 0)]
    parts = [f"{name} {verb} ({_before_and_after(rows[rows['class'] == name])})" for name, verb, true in told if true]
    return [f"By class, {listed(parts)}."] if parts else []


def _before_and_after(rows: pd.DataFrame) -> str:
    sums = rows.groupby("run", sort=False)[["base_gpu_time_ms", "gpu_time_ms"]].sum()
    before, after = (interval(sums[name], significant) for name in ("base_gpu_time_ms", "gpu_time_ms"))
    return f"{before} ms before, {after} ms after"


def _cost(cost: pd.DataFrame) -> list[str]:
    """The seconds of compilation, and after how many steps they have paid."""
    if cost["compile_s"].dropna().empty:
        return ["What compiling cost is not known."]
    seconds = extremes(cost, "compile_s", lambda row: f"{significant(row['compile_s'])} s")
    paid, never = cost[cost["steps_to_pay"].notna()], cost[cost["gained_ms"] <= 0]
    told = [f"Compiling, with an empty cache, takes {seconds}"]
    if len(paid):
        told.append(f"which {interval(paid['steps_to_pay'].round(), count)} steps pay for")
    if len(never):
        told.append(f"which nothing pays for in {places(never)}")
    return [", ".join(told) + "."]


def _graphs(cost: pd.DataFrame) -> list[str]:
    """Whether any graph was broken."""
    known = cost[cost["graph_breaks"].notna()]
    broken = known[known["graph_breaks"].astype("float64") > 0]
    if known.empty:
        return []
    if broken.empty:
        return [f"Dynamo traced {counted(known['graphs'], 'graph')} per run, without a break."]
    return [f"The graph is broken into parts in {places(broken)}."]
