"""The sentences of (h): the fastest attention by length, what each gains, and where memory ends."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import interval, known, ratio
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.study.dimensions import ATTENTION, keys_without
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.ratio_sentences import steps_sentences, without
from profile_grid.tables.wording import PASSES, leaders, listed, places

NOTHING = "Not answered: no two runs differ in attention alone, with times of at least one."
TOLD_APART = 2  # standard deviations of a difference
WRITTEN_OUT = ATTENTION.name_of(ATTENTION.default)


def sentences(measured: Measured) -> list[str]:
    """(h) Which is fastest, how much faster each is than the written-out one, the ideal, and where memory ends."""
    rows = measured.tables["attention_times"]
    steps = rows[rows["phase"] == WHOLE_STEP]
    if not (steps["status"] == COMPLETE).any():
        return [NOTHING]
    beside = steps[steps["speed_up"].notna()]
    gains = [
        line
        for value in sorted_values(beside, ATTENTION.key)
        for line in steps_sentences(beside[beside[ATTENTION.key] == value], ATTENTION, WRITTEN_OUT)
    ]
    operator = _operator(measured.tables["attention_operator"], measured)
    return [*_fastest(steps), *gains, *operator, *_memory(steps), *_refused(steps)]


def _fastest(steps: pd.DataFrame) -> list[str]:
    """Per mode the fastest attention, by context length where that differs."""
    timed = steps[steps["mean_ms"].notna()]
    first = pd.DataFrame([_winners(own) for _, own in timed.groupby(keys_without(ATTENTION.key), sort=False)])
    told = []
    for mode, rows in first.groupby("mode", sort=False):
        by_length = {length: leaders(list(own["fastest"])) for length, own in rows.groupby("context_length")}
        if rows["fastest"].nunique() == 1:
            by_length = {"every": rows["fastest"].iloc[0]}
        named = listed([f"{name} at {_context(length)}" for length, name in by_length.items()])
        told.append(f"in {PASSES[mode]} {named}")
    return [f"The fastest attention is {listed(told)}."]


def _winners(own: pd.DataFrame) -> dict:
    """The row of the shortest time with `fastest`: its attention, and those that their spreads do not tell from it."""
    best = own.loc[own["mean_ms"].idxmin()]
    spread = (own["std_ms"].fillna(0.0) ** 2 + (best["std_ms"] if known(best["std_ms"]) else 0.0) ** 2) ** 0.5
    equal = own[own["mean_ms"] - best["mean_ms"] <= TOLD_APART * spread]
    return {**best, "fastest": " or ".join(map(str, sorted_values(equal, ATTENTION.key)))}


def _context(length: int | str) -> str:
    return "every context" if length == "every" else f"context {length}"


def _operator(rows: pd.DataFrame, measured: Measured) -> list[str]:
    """How much faster the operator alone is, and what the data sheet would allow."""
    if rows.empty:
        return []
    told = [
        f"{interval(rows[rows[ATTENTION.key] == value]['speed_up'], ratio)} with {value}"
        for value in sorted_values(rows, ATTENTION.key)
    ]
    found = [
        f"By {measured.words.time} in the forward pass the operator alone is, beside the one written out, as fast as"
        f" {listed(told)}."
    ]
    if rows["ideal_by_flops"].notna().any():
        flops, moved = (interval(rows[f"ideal_by_{bound}"], ratio) for bound in ("flops", "bytes"))
        found.append(f"Ideal would be {flops} by arithmetic (peak FLOP/s) and {moved} by memory (peak bytes/s).")
    return found


def _memory(steps: pd.DataFrame) -> list[str]:
    """Where memory ends with each attention, and which still fit there."""
    out = steps[steps["status"] == OUT_OF_MEMORY]
    if out.empty:
        return ["Memory does not end in any of them."]
    told = []
    for value in sorted_values(out, ATTENTION.key):
        own = out[out[ATTENTION.key] == value]
        told.append(f"with {value} in {places(without(own, ATTENTION))} ({_modes(own)})")
    place = keys_without(ATTENTION.key)
    there = steps[steps["status"] == COMPLETE].merge(out[place].drop_duplicates(), on=place)
    fits = [str(value) for value in sorted_values(there, ATTENTION.key)]
    return [f"Memory runs out {listed(told)}.", *([f"Some of these fit with {listed(fits)}."] if fits else [])]


def _refused(steps: pd.DataFrame) -> list[str]:
    """What PyTorch refuses here."""
    refused = steps[steps["status"] == UNSUPPORTED]
    if refused.empty:
        return []
    told = [
        f"{escaped(value)} in {len(own)} run{'s' if len(own) > 1 else ''}"
        for value, own in refused.groupby(ATTENTION.key, sort=False)
    ]
    return [f"PyTorch refuses {listed(told)}, for the reason under *Not measured*."]


def _modes(rows: pd.DataFrame) -> str:
    return listed([PASSES[mode] for mode in dict.fromkeys(rows["mode"])])
