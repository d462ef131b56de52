"""What the document of (h) says: sentences and tables."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, interval, known, memory, ratio, significant
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.study.dimensions import ATTENTION, keys_without
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import pivoted, shown_dimensions, sorted_values
from profile_grid.tables.cells import headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.ratio_sentences import steps_sentences, without
from profile_grid.tables.wording import PASSES, leaders, listed, places

NOTHING = "Not answered: no two runs differ in attention alone, with times of at least one."
TOLD_APART = 2  # standard deviations of a difference
WRITTEN_OUT = ATTENTION.name_of(ATTENTION.default)
PLACE = keys_without(ATTENTION.key)
CELL = ["mean_ms", "speed_up", "speed_up_std", "status", "peak_allocated_bytes"]


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


def steps_table(measured: Measured) -> MarkdownTable | None:
    """(h) One line per configuration, one column per attention: time of a step, and beside the written-out one its
    speed-up; or why there is none."""
    return _by_attention(measured, _time)


def memory_table(measured: Measured) -> MarkdownTable | None:
    """(h) The same with the most memory that tensors took; None on a CPU, which does not tell."""
    known_peaks = measured.tables["attention_times"]["peak_allocated_bytes"].notna().any()
    return _by_attention(measured, _peak) if known_peaks else None


def operator_table(measured: Measured) -> MarkdownTable | None:
    """(h) One line per run: the operator of all layers in a forward pass beside the written-out one."""
    rows = measured.tables["attention_operator"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, (*ratio_tables.ALWAYS, ATTENTION.key))
    lines = tuple(
        (
            *leading_cells(row, shown), significant(row["base_gpu_time_ms"]), significant(row["gpu_time_ms"]),
            ratio(row["speed_up"], row["speed_up_std"]), ratio(row["ideal_by_flops"]), ratio(row["ideal_by_bytes"]),
        )
        for row in rows.to_dict("records")
    )  # fmt: skip
    headings = ("written out, ms", "this, ms", "times as fast", "ideal by FLOP/s", "ideal by bytes/s")
    return MarkdownTable((*headings_of(shown), *headings), lines, first_right=len(shown))


def _by_attention(measured: Measured, cell: Callable[[pd.Series], str]) -> MarkdownTable | None:
    rows = measured.tables["attention_times"]
    rows = rows[rows["phase"] == WHOLE_STEP]
    if rows.empty:
        return None
    values = sorted_values(rows, ATTENTION.key)
    wide = pivoted(rows, PLACE, ATTENTION.key, CELL)
    places = rows.drop_duplicates(PLACE)
    shown = shown_dimensions(places, ratio_tables.ALWAYS, hidden=(ATTENTION.key,))
    lines = []
    for row in places.to_dict("records"):
        own = wide.loc[tuple(row[key] for key in PLACE)]
        cells = (cell(pd.Series({name: own[(name, value)] for name in CELL})) for value in values)
        lines.append((*leading_cells(row, shown), *cells))
    headings = (f"{value} (written out)" if value == ATTENTION.default else str(value) for value in values)
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _time(cell: pd.Series) -> str:
    if not known(cell["mean_ms"]):
        return _without_figure(cell)
    if not known(cell["speed_up"]):
        return significant(cell["mean_ms"])
    return ratio_tables.time_and_gain(cell["mean_ms"], cell["speed_up"], cell["speed_up_std"])


def _peak(cell: pd.Series) -> str:
    if cell["status"] == COMPLETE and known(cell["peak_allocated_bytes"]):
        return memory(cell["peak_allocated_bytes"])
    return _without_figure(cell)


def _without_figure(cell: pd.Series) -> str:
    return status_word(cell["status"]) if known(cell["status"]) else ABSENT
