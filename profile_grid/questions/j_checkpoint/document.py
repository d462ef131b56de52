"""What the document of (j) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, interval, known, memory, percent, ratio, with_spread
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.study.dimensions import CHECKPOINT, keys_without
from profile_grid.tables import ratio_tables
from profile_grid.tables.cells import lines_table, status_word
from profile_grid.tables.claims import Claim
from profile_grid.tables.evidence import UNTOLD
from profile_grid.tables.gains import whole_steps
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.pivoting import sorted_values
from profile_grid.tables.wording import capital, listed, places, where

NO_ANSWER = Claim(
    "Not answered: no two training runs differ only in checkpoints, with times of at least one.", "missing"
)
PEAKS = ("peak_allocated_bytes", "recorded_peak_bytes")
MEMORY = {
    "peak_allocated_bytes": "peak",
    "recorded_peak_bytes": "recorded peak",
    "predicted_peak_bytes": "peak, predicted",
    "recorded_kept_bytes": "kept, recorded",
    "kept_bytes": "kept, predicted",
}


def sentences(measured: Measured) -> list[str]:
    """(j) The largest saving and its cost; then what fits, the lowest peak, and the cost in time."""
    times, taken = measured.tables["checkpoint_times"], measured.tables["checkpoint_memory"]
    if not (taken["status"] == COMPLETE).any():
        return [NO_ANSWER]
    steps, base = whole_steps(times), CHECKPOINT.default
    both = taken[taken[CHECKPOINT.key] != base].merge(steps[["run", "speed_up", "verdict"]], on="run", how="left")
    lead = _largest_saving(both)
    return [*lead, *_fits(taken), *_least(taken), *_longer(steps), *_again(taken, measured)] or [NO_ANSWER]


def _largest_saving(both: pd.DataFrame) -> list[Claim]:
    """The largest saving of memory, and how much longer that step takes."""
    for peak in PEAKS:
        ratios = (both[peak] / both[f"base_{peak}"]).astype("float64").where(both["speed_up"].notna())
        if ratios.notna().any():
            return [_saving(both.loc[ratios.idxmin()], peak)]
    return []


def _saving(row: pd.Series, peak: str) -> Claim:
    longer = percent(1 / row["speed_up"] - 1) + " more time"
    return Claim(
        "{value}, {place} trains in {peak} instead of {base_peak}, for {cost}.",
        "untold" if row["verdict"] == UNTOLD else "difference", value=capital(CHECKPOINT.words(row[CHECKPOINT.key])),
        place=where(row.to_dict() | {CHECKPOINT.key: CHECKPOINT.default}), peak=memory(row[peak]),
        base_peak=memory(row[f"base_{peak}"]),
        cost=f"an {UNTOLD} difference in time" if row["verdict"] == UNTOLD else longer,
    )  # fmt: skip


def _least(taken: pd.DataFrame) -> list[Claim]:
    """The value with the lowest peak in each configuration, its prediction, and the peaks of the values next to it."""
    column = next((name for name in PEAKS if taken[name].notna().any()), None)
    if column is None:
        return []
    texts = []
    for _, rows in taken[taken[column].notna()].groupby(keys_without(CHECKPOINT.key), sort=False):
        values = sorted_values(rows, CHECKPOINT.key)
        peaks = rows.set_index(CHECKPOINT.key).loc[values]
        place = values.index(peaks[column].idxmin())
        least = peaks.iloc[place]
        expected = known(least["predicted_peak_bytes"])
        predicted = f", predicted {memory(least['predicted_peak_bytes'])}" if expected else ""
        beside = [values[at] for at in (place - 1, place + 1) if 0 <= at < len(values)]
        next_to = [f"{CHECKPOINT.name_of(value)} {memory(peaks.loc[value, column])}" for value in beside]
        config = where(rows.iloc[0].to_dict() | {CHECKPOINT.key: CHECKPOINT.default})
        texts.append(f"{config} {memory(least[column])} with {CHECKPOINT.name_of(values[place])}{predicted}"
                     f" ({listed(next_to)})")  # fmt: skip
    return [
        Claim("Lowest peak, with those of the next values in brackets: {texts}.", "measured", texts="; ".join(texts))
    ]


def _longer(steps: pd.DataFrame) -> list[Claim]:
    """By value how many times as long a step takes, and how much of that the FLOPs explain."""
    texts = []
    for value in sorted_values(steps, CHECKPOINT.key):
        with_value = steps[steps[CHECKPOINT.key] == value]
        ideal = 1 / with_value["ideal_by_flops"].dropna()
        flops = f" (FLOPs predict {interval(ideal, ratio)})" if len(ideal) else ""
        unclear = with_value["verdict"] == UNTOLD
        without = with_value[unclear].assign(**{CHECKPOINT.key: CHECKPOINT.default})
        unclear_text = f", {UNTOLD} in {places(without)}" if unclear.any() else ""
        texts.append(f"{CHECKPOINT.words(value)} {interval(1 / with_value['speed_up'], ratio)}{flops}{unclear_text}")
    text = "Time of a step, compared with no checkpoints: {texts}."
    return [Claim(text, "difference", texts="; ".join(texts))] if texts else []


def _again(taken: pd.DataFrame, measured: Measured) -> list[Claim]:
    shares = taken.loc[taken[CHECKPOINT.key] != CHECKPOINT.default, "recomputed_share"].dropna()
    text = "Recomputation takes {shares} of the {time} of a step."
    return [Claim(text, shares=interval(shares, percent), time=measured.words.time)] if len(shares) else []


def _fits(taken: pd.DataFrame) -> list[Claim]:
    """Where memory runs out without checkpoints, and the values with which it does not."""
    failed = taken[(taken[CHECKPOINT.key] == CHECKPOINT.default) & (taken["status"] == OUT_OF_MEMORY)]
    if failed.empty:
        return []
    keys = keys_without(CHECKPOINT.key)
    fits = taken[taken["status"] == COMPLETE].merge(failed[keys], on=keys)
    remedy = ""
    if len(fits):
        values = [CHECKPOINT.name_of(value) for value in sorted_values(fits, CHECKPOINT.key)]
        remedy = f"; it fits with checkpoints of {listed(values)}"
    text = "Without checkpoints, {places} {runs} out of memory{named}."
    return [Claim(text, "counted", places=places(failed), runs="runs" if len(failed) == 1 else "run", named=remedy)]


def trade_table(measured: Measured) -> MarkdownTable:
    """(j) One line per training run, also without checkpoints: its step and the ratio to that without checkpoints, its
    memory as far as known, and the share of GPU time that recomputes; or why there is none."""
    taken, times = measured.tables["checkpoint_memory"], measured.tables["checkpoint_times"]
    steps = times[times["phase"] == WHOLE_STEP].set_index("run")
    sizes = [name for name in MEMORY if taken[name].notna().any()]

    def cells(row: dict) -> tuple[str, ...]:
        time = with_spread(row["mean_ms"], row["std_ms"]) if row["status"] == COMPLETE else status_word(row["status"])
        longer = _longer_cells(steps.loc[row["run"]]) if row["run"] in steps.index else (ABSENT, ABSENT)
        return time, *longer, *_memory_cells(row, sizes)

    headings = ("step, ms", "times as long", "by FLOPs", *(MEMORY[name] for name in sizes), "recomputation")
    return lines_table(taken, (*ratio_tables.LEADING_KEYS, CHECKPOINT.key), headings, cells)


def _longer_cells(row: pd.Series) -> tuple[str, str]:
    ideal = ratio(1 / row["ideal_by_flops"]) if known(row["ideal_by_flops"]) else ABSENT
    return ratio(1 / row["speed_up"]) + (" ?" if row["verdict"] == UNTOLD else ""), ideal


def _memory_cells(row: dict, sizes: list[str]) -> tuple[str, ...]:
    texts = (memory(row[name]) if known(row[name]) else ABSENT for name in sizes)
    return *texts, percent(row["recomputed_share"])
