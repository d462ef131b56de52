"""The sentences of (i): how much a step needs and when, what takes it, what is kept where, and what would fit."""

from __future__ import annotations

import pandas as pd

from kernel_tables.attribution.path_text import innermost
from kernel_tables.markdown import escaped
from profile_grid.quantities import count, interval, memory, percent, significant
from profile_grid.questions.i_memory.fitting import LARGEST_BATCH, LONGEST_CONTEXT
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, OUTSIDE
from profile_grid.tables.wording import PASSES, capital, extremes, leaders, listed, run_in_words

MOST_NAMED = 3  # runs out of memory; the document's table has all
EXPECTED = (
    ("the peaks", "requested_peak_bytes", "estimated_peak_bytes"),
    ("the activations", "activation_bytes", "estimated_activation_bytes"),
)
NOT_RECORDED = "Not answered: no run whose allocations were to be recorded has a whole history."


def sentences(measured: Measured) -> list[str]:
    """(i) By mode the fullest moment of a step; then the activations, the counters and what would fit."""
    peaks = measured.tables["memory_peak"]
    if peaks.empty:
        return _failures(measured) or [NOT_RECORDED]
    found = [_of_mode(rows, mode) for mode, rows in peaks.groupby("mode", sort=False)]
    found += [*_kept(measured), *_counted(measured), *_expected(measured), *_fitting(measured)]
    return [*found, *_bisected(measured), *_failures(measured)]


def _of_mode(rows: pd.DataFrame, mode: str) -> str:
    """How much a step of this mode needs, when, and what most of it is."""
    runs = rows.drop_duplicates("run")
    most = rows.sort_values("bytes", ascending=False, kind="stable").drop_duplicates("run")
    return (
        f"{capital(PASSES[mode])} needs {extremes(runs, 'peak_bytes', lambda row: memory(row['peak_bytes']))} at its"
        f" fullest moment, in {leaders([f'**{phase}**' for phase in runs['fullest_phase']])}; the most is for"
        f" {leaders([f'**{name}**' for name in most['category']])} ({interval(most['share'], percent)})."
    )


def _kept(measured: Measured) -> list[str]:
    """Which part of the model keeps the most for the backward pass."""
    parts = measured.tables["memory_parts"]
    if parts.empty:
        return []
    first = parts.sort_values("bytes", ascending=False, kind="stable").drop_duplicates("run")
    leading = leaders([f"**{escaped(part)}**" for part in first["part"]])
    total = parts.groupby("run", sort=False)["bytes"].sum()
    return [
        f"For the backward pass {interval(total, memory)} are kept; the part that keeps the most is {leading}"
        f" ({interval(first['share'], percent)})."
    ]


def _counted(measured: Measured) -> list[str]:
    """What the allocator gave out, held, and what the driver saw, over what was asked for."""
    room = measured.tables["memory_room"]
    asked = room["requested_peak_bytes"]
    if room["allocated_peak_bytes"].isna().all():
        return []
    given, held, used = (
        interval((room[name] / asked).astype("float64"), _times)
        for name in ("allocated_peak_bytes", "reserved_peak_bytes", "driver_used_bytes")
    )
    return [
        f"Of what was asked for at once, the allocator gave out {given} and held {held},"
        f" and {used} were in use on the GPU."
    ]


def _expected(measured: Measured) -> list[str]:
    """How near the estimates from the shapes are."""
    room, told = measured.tables["memory_room"], []
    for what, found, expected in EXPECTED:
        both = room[room[expected].notna() & room[found].notna()]
        if len(both):
            told.append(f"{interval((both[expected] / both[found]).astype('float64'), percent)} of {what}")
    return [f"What follows from the shapes is {listed(told)} that were found."] if told else []


def _fitting(measured: Measured) -> list[str]:
    """What would fit into the GPU, by the estimate."""
    room = measured.tables["memory_room"]
    trains = room[(room["mode"] != FORWARD) & room[LONGEST_CONTEXT].notna()]
    if trains.empty:
        return []
    longest = extremes(trains, LONGEST_CONTEXT, lambda row: f"{count(row[LONGEST_CONTEXT])} tokens")
    batch = extremes(trains, LARGEST_BATCH, lambda row: f"{count(row[LARGEST_BATCH])} sequences")
    return [f"By the shapes the longest context that trains on this GPU is {longest}; the largest batch {batch}."]


def _bisected(measured: Measured) -> list[str]:
    """What was measured to fit, beside what the shapes let expect."""
    rows = measured.tables["memory_fits"]
    both = rows[rows["predicted"].notna() & (rows["predicted"] > 0)]
    if both.empty:
        return []
    share = interval((both["largest"] / both["predicted"]).astype("float64"), percent)
    return [f"What was measured to fit, by bisection, is {share} of what follows from the shapes."]


def _failures(measured: Measured) -> list[str]:
    """Where memory ran out, what was asked for, and what was live then."""
    rows = measured.tables["memory_at_failure"]
    return [_failure(own) for _, own in list(rows.groupby("run", sort=False))[:MOST_NAMED]]


def _failure(own: pd.DataFrame) -> str:
    """The same of one run."""
    first, of_category = own.iloc[0], own.groupby("category", sort=False)["bytes"].sum()
    path = innermost(first["in_range"])
    where = f"**{escaped(first['in_phase'])}**" + (f" (**{escaped(path)}**)" if path else "")
    if first["in_phase"] == OUTSIDE:
        where = "the making of model and optimizer"
    return (
        f"Memory runs out in {where} of {run_in_words(first)}: {memory(first['requested_bytes'])} were asked for,"
        f" {memory(first['free_bytes'])} free; of the {memory(first['live_bytes'])} that were live"
        f" {percent(of_category.max() / first['live_bytes'])} are **{escaped(of_category.idxmax())}**."
    )


def _times(value: float) -> str:
    return f"× {significant(value)}"
