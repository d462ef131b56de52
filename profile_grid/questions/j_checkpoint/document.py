"""What the document of (j) says: sentences and tables."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, interval, known, memory, percent, ratio, significant, with_spread
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.study.dimensions import CHECKPOINT, MODE, keys_without
from profile_grid.tables import gains, names, pivoting
from profile_grid.tables.cells import Part, lines_table, status_word
from profile_grid.tables.evidence import UNCLEAR
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import PASSES, Claim, capital, config_in_words, leaders, listed, named_keys, of_all

NO_ANSWER = Claim(
    "Not answered: no two training runs differ only in checkpoints, with times of at least one.", "missing"
)
MAX_NAMED = 2
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
    steps, base = gains.whole_steps(times), CHECKPOINT.default
    both = taken[taken[CHECKPOINT.key] != base].merge(steps[["run", "speed_up", "verdict"]], on="run", how="left")
    lead = _largest_saving(both)
    checkpointed = int(((taken[CHECKPOINT.key] != base) & (taken["status"] == COMPLETE)).sum())
    longer = _longer(steps, checkpointed)
    return [*lead, *_fits(taken), *_least(taken), *longer, *_again(taken, measured)] or [NO_ANSWER]


def _largest_saving(both: pd.DataFrame) -> list[Claim]:
    """The largest saving of memory, and how much longer that step takes."""
    for peak in PEAKS:
        ratios = (both[peak] / both[f"base_{peak}"]).astype("float64").where(both["speed_up"].notna())
        if ratios.notna().any():
            return [_saving(both.loc[ratios.idxmin()], peak, named_keys(both))]
    return []


def _saving(row: pd.Series, peak: str, named: Sequence[str]) -> Claim:
    longer = percent(1 / row["speed_up"] - 1) + " more time"
    return Claim(
        "{value}, {place} trains in {peak} instead of {base_peak}, for {cost}.",
        "unclear" if row["verdict"] == UNCLEAR else "difference", value=capital(CHECKPOINT.words(row[CHECKPOINT.key])),
        place=config_in_words(row.to_dict() | {CHECKPOINT.key: CHECKPOINT.default}, named), peak=memory(row[peak]),
        base_peak=memory(row[f"base_{peak}"]),
        cost=f"an {UNCLEAR} difference in time" if row["verdict"] == UNCLEAR else longer,
    )  # fmt: skip


def _least(taken: pd.DataFrame) -> list[Claim]:
    """The values with the lowest peak, these peaks and the largest error of their predictions."""
    column = next((name for name in PEAKS if taken[name].notna().any()), None)
    if column is None:
        return []
    rows = taken[taken[column].notna()]
    least = rows.loc[rows.groupby(keys_without(CHECKPOINT.key), sort=False)[column].idxmin()]
    values = [_with(value) for value in least[CHECKPOINT.key]]
    least_with = leaders(values, noun="configuration")
    errors = (least["predicted_peak_bytes"] / least[column] - 1).astype("float64").abs().dropna()
    predicted = f", predicted to within {percent(errors.max())}" if len(errors) else ""
    text = "The peak is lowest {values}: {peaks}{predicted}."
    return [Claim(text, values=least_with, peaks=interval(least[column], memory), predicted=predicted)]


def _with(value: str) -> str:
    return "without checkpoints" if value == CHECKPOINT.default else CHECKPOINT.words(value)


def _longer(steps: pd.DataFrame, checkpointed: int) -> list[Claim]:
    """How many times as long a step takes with checkpoints, and how much of that the FLOPs explain, in those of all
    complete runs with checkpoints that were also measured without; the table has each run."""
    if steps.empty:
        return []
    ideal, unclear = 1 / steps["ideal_by_flops"].dropna(), int((steps["verdict"] == UNCLEAR).sum())
    flops = f"; the FLOPs predict {interval(ideal, significant)} times" if len(ideal) else ""
    also = f'; {UNCLEAR} in {of_all(unclear, len(steps), "run")} (marked "?")' if unclear else ""
    some = (
        f" in the {len(steps)} of {checkpointed} runs that were also measured without"
        if len(steps) < checkpointed
        else ""
    )
    text = "With checkpoints, a step takes {times} times as long as without{some}{flops}{also}."
    times = interval(1 / steps["speed_up"], significant)
    return [Claim(text, "difference", times=times, some=some, flops=flops, also=also)]


def _again(taken: pd.DataFrame, measured: Measured) -> list[Claim]:
    shares = taken.loc[taken[CHECKPOINT.key] != CHECKPOINT.default, "recomputed_share"].dropna()
    text = "Recomputation takes {shares} of the {time} of a step."
    return [Claim(text, shares=interval(shares, percent), time=measured.words.time)] if len(shares) else []


def _fits(taken: pd.DataFrame) -> list[Claim]:
    """Each configuration that runs out of memory without checkpoints, and the values with which it does not: more than
    MAX_NAMED as a number."""
    failed = taken[(taken[CHECKPOINT.key] == CHECKPOINT.default) & (taken["status"] == OUT_OF_MEMORY)]
    keys, modes = keys_without(CHECKPOINT.key), MODE.key if taken[MODE.key].nunique() > 1 else None
    claims = []
    for _, rows in failed.groupby(keys_without(CHECKPOINT.key, MODE.key), sort=False):
        tried = taken[taken[CHECKPOINT.key] != CHECKPOINT.default].merge(rows[keys], on=keys)
        fits = tried[tried["status"] == COMPLETE]
        in_all = [value for value, runs in fits.groupby(CHECKPOINT.key) if len(runs) == len(rows)]
        values = [value for value in pivoting.sorted_values(fits, CHECKPOINT.key) if value in in_all]
        sizes = CHECKPOINT.words(listed(values[:MAX_NAMED]))
        if len(values) > MAX_NAMED:
            number = of_all(len(values), tried[CHECKPOINT.key].nunique(), "size", "sizes")
            sizes = f"with {number} of checkpoints that were tried"
        claims.append(
            Claim(
                "Without checkpoints, {place} runs out of memory{modes}{remedy}.", "counted",
                place=config_in_words(rows.iloc[0].to_dict()),
                modes=f" in {listed([PASSES[mode] for mode in rows[modes]])}" if modes else "",
                remedy=f"; it fits {sizes}" if values else "",
            )
        )  # fmt: skip
    return claims


def tables(measured: Measured) -> list[Part]:
    """(j) Time and memory of each training run."""
    time = measured.words.time
    text = f"Time of a step without a profiler, memory, and the share of recomputation in its {time}"
    return [(text, _trade_table(measured))]


def _trade_table(measured: Measured) -> MarkdownTable:
    """One line per training run, also without checkpoints: its step and the ratio to that without checkpoints, its
    memory as far as known, and the share of GPU time that recomputes; or why there is none."""
    taken, times = measured.tables["checkpoint_memory"], measured.tables["checkpoint_times"]
    steps = times[times["phase"] == names.WHOLE_STEP].set_index("run")
    sizes = [name for name in MEMORY if taken[name].notna().any()]

    def cells(row: dict) -> tuple[str, ...]:
        time = with_spread(row["mean_ms"], row["std_ms"]) if row["status"] == COMPLETE else status_word(row["status"])
        longer = _longer_cells(steps.loc[row["run"]]) if row["run"] in steps.index else (ABSENT, ABSENT)
        return time, *longer, *_memory_cells(row, sizes)

    headings = ("step, ms", "times as long", "by FLOPs", *(MEMORY[name] for name in sizes), "recomputation")
    return lines_table(taken, (*gains.LEADING_KEYS, CHECKPOINT.key), headings, cells)


def _longer_cells(row: pd.Series) -> tuple[str, str]:
    ideal = ratio(1 / row["ideal_by_flops"]) if known(row["ideal_by_flops"]) else ABSENT
    return ratio(1 / row["speed_up"]) + (" ?" if row["verdict"] == UNCLEAR else ""), ideal


def _memory_cells(row: dict, sizes: list[str]) -> tuple[str, ...]:
    texts = (memory(row[name]) if known(row[name]) else ABSENT for name in sizes)
    return *texts, percent(row["recomputed_share"])
