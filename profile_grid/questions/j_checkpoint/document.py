"""What the document of (j) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, interval, known, memory, percent, ratio, with_spread
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.study.dimensions import CHECKPOINT, keys_without
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import shown_dimensions, sorted_values
from profile_grid.tables.cells import headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.ratio_sentences import extremes_by_mode, without
from profile_grid.tables.wording import capital, extremes, listed, places

NOTHING = "Not answered: no two training runs differ in checkpoints alone, with times of at least one."
MEMORY = {
    "peak_allocated_bytes": "most memory",
    "recorded_peak_bytes": "most recorded",
    "recorded_kept_bytes": "kept, recorded",
    "kept_bytes": "kept, by shapes",
}


def sentences(measured: Measured) -> list[str]:
    """(j) For each number of blocks: time, memory and the part that computes again; then what fits by it alone."""
    times, taken = measured.tables["checkpoint_times"], measured.tables["checkpoint_memory"]
    if not (taken["status"] == COMPLETE).any():
        return [NOTHING]
    found = []
    for value in sorted_values(taken, CHECKPOINT.key):
        if value == CHECKPOINT.default:
            continue
        steps = times[(times[CHECKPOINT.key] == value) & (times["phase"] == WHOLE_STEP)]
        own = taken[taken[CHECKPOINT.key] == value]
        found += [*_longer(steps), *_memory(own), *_again(own, measured)]
    return [*found, *_fits(taken)]


def _longer(steps: pd.DataFrame) -> list[str]:
    """How many times as long a step takes, and what the FLOPs explain of that."""
    if steps.empty:
        return []
    value = capital(CHECKPOINT.words(steps[CHECKPOINT.key].iloc[0]))
    alone = without(steps, CHECKPOINT).assign(longer=1 / steps["speed_up"])
    alone["longer_std"] = alone["longer"] ** 2 * steps["speed_up_std"]
    took = extremes_by_mode(alone, "longer", lambda row: ratio(row["longer"], row["longer_std"]))
    said = f"{value}, times as long as without: {took}"
    ideal = 1 / steps["ideal_by_flops"].dropna()
    return [said + (f"; by the FLOPs of what is computed again {interval(ideal, ratio)}." if len(ideal) else ".")]


def _memory(own: pd.DataFrame) -> list[str]:
    """What is left: of the most memory that tensors took, as timed or else as recorded, and of what is kept for the
    backward pass, as recorded and by the shapes."""
    peaks = (_left(own, "peak_allocated_bytes"), _left(own, "recorded_peak_bytes"))
    told = [f"of the most memory that tensors took there is left {left}" for left in peaks if left][:1]
    if left := _left(own, "recorded_kept_bytes"):
        told.append(f"of the activations that were found kept for the backward pass {left}")
    shares = (own["kept_bytes"] / own["base_kept_bytes"]).dropna()
    if len(shares):
        told.append(f"by the shapes {interval(shares, percent)} of the activations are kept")
    return [f"{capital(listed(told))}."] if told else []


def _left(own: pd.DataFrame, column: str) -> str:
    """What is left of this memory in words, from the least to the most of it; "" where no two runs tell it."""
    share = own[column] / own[f"base_{column}"]
    rows = without(own, CHECKPOINT).assign(left=share)[share.notna()]
    return extremes(rows, "left", lambda row: _left_of(row, column)) if len(rows) else ""


def _left_of(row, column: str) -> str:
    return f"{percent(row['left'])}, {memory(row[column])} of {memory(row[f'base_{column}'])}"


def _again(own: pd.DataFrame, measured: Measured) -> list[str]:
    shares = own["recomputed_share"].dropna()
    if shares.empty:
        return []
    return [f"Computing again takes {interval(shares, percent)} of the {measured.words.time} of a step."]


def _fits(taken: pd.DataFrame) -> list[str]:
    """Where memory runs out without checkpoints, and the fewest checkpoints by which it does not."""
    out = taken[(taken[CHECKPOINT.key] == CHECKPOINT.default) & (taken["status"] == OUT_OF_MEMORY)]
    if out.empty:
        return []
    place = keys_without(CHECKPOINT.key)
    fits = taken[taken["status"] == COMPLETE].merge(out[place], on=place)
    told = [f"Without checkpoints memory runs out in {places(out)}"]
    if len(fits):
        fewest = fits.loc[fits.groupby(place, sort=False)[CHECKPOINT.key].idxmax()]
        named = [f"{CHECKPOINT.words(value)} it does not" for value in sorted_values(fewest, CHECKPOINT.key)]
        told.append(listed(named))
    return ["; ".join(told) + "."]


def trade_table(measured: Measured) -> MarkdownTable | None:
    """(j) One line per training run, that without checkpoints among them: its step, how many times as long that is,
    its memory as far as any run tells it, and the part of GPU time that computes again; or why there is none."""
    taken, times = measured.tables["checkpoint_memory"], measured.tables["checkpoint_times"]
    if taken.empty:
        return None
    steps = times[times["phase"] == WHOLE_STEP].set_index("run")
    shown = shown_dimensions(taken, (*ratio_tables.ALWAYS, CHECKPOINT.key))
    sizes = [name for name in MEMORY if taken[name].notna().any()]
    lines = []
    for row in taken.to_dict("records"):
        complete = row["status"] == COMPLETE
        time = with_spread(row["mean_ms"], row["std_ms"]) if complete else status_word(row["status"])
        longer = _longer_cells(steps.loc[row["run"]]) if row["run"] in steps.index else (ABSENT, ABSENT)
        lines.append((*leading_cells(row, shown), time, *longer, *_memory_cells(row, sizes)))
    headings = ("step, ms", "times as long", "by FLOPs", *(MEMORY[name] for name in sizes), "computed again")
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _longer_cells(row: pd.Series) -> tuple[str, str]:
    ideal = ratio(1 / row["ideal_by_flops"]) if known(row["ideal_by_flops"]) else ABSENT
    return ratio(1 / row["speed_up"], row["speed_up_std"] / row["speed_up"] ** 2), ideal


def _memory_cells(row: dict, sizes: list[str]) -> tuple[str, ...]:
    told = (memory(row[name]) if known(row[name]) else ABSENT for name in sizes)
    return *told, percent(row["recomputed_share"])
