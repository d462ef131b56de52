"""What the document of (j) says: sentences and tables."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, interval, memory, percent, ratio, significant, with_spread
from profile_grid.questions.j_checkpoint.table import PEAKS, column_with_values
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.study.dimensions import CHECKPOINT, MODE, keys_without
from profile_grid.tables import gains, pivoting
from profile_grid.tables.cells import Part, columns_with_values, rows_table, text_or_status
from profile_grid.tables.evidence import UNCLEAR
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import PASSES, Claim, capital, config_in_words, leaders, listed, named_keys, of_all

NO_ANSWER = Claim(
    "Not answered: no two training runs differ only in checkpoints, with times of at least one.", "missing"
)
MAX_NAMED = 2
MEMORY_HEADINGS = {
    "peak_allocated_bytes": "peak",
    "recorded_peak_bytes": "recorded peak",
    "predicted_peak_bytes": "peak, predicted",
    "recorded_kept_bytes": "kept, recorded",
    "kept_bytes": "kept, predicted",
}


def sentences(measured: Measured) -> list[Claim]:
    """(j) The largest saving and its cost; then what fits, the lowest peak, the cost in time, and recomputation."""
    steps, memory_rows = gains.whole_steps(measured.tables["checkpoint_times"]), measured.tables["checkpoint_memory"]
    if not (memory_rows["status"] == COMPLETE).any():
        return [NO_ANSWER]
    checkpointed = memory_rows[memory_rows[CHECKPOINT.key] != CHECKPOINT.default]
    lead = _largest_saving(checkpointed.merge(steps[["run", "speed_up", "verdict"]], on="run", how="left"))
    longer = _time_ratios(steps, int((checkpointed["status"] == COMPLETE).sum()))
    fits, least = _fitting_values(memory_rows), _lowest_peak(memory_rows)
    return [*lead, *fits, *least, *longer, *_recomputation(checkpointed, measured)] or [NO_ANSWER]


def _largest_saving(both: pd.DataFrame) -> list[Claim]:
    """The largest relative saving of memory, and how much longer that step takes; [] unless both are known of a run."""
    for peak in PEAKS:
        ratios = (both[peak] / both[f"base_{peak}"]).astype("float64").where(both["speed_up"].notna())
        if ratios.notna().any():
            return [_saving(both.loc[ratios.idxmin()], peak, named_keys(both))]
    return []


def _saving(row: pd.Series, peak: str, named: Sequence[str]) -> Claim:
    more_time = percent(1 / row["speed_up"] - 1) + " more time"
    return Claim(
        "{value}, {place} trains in {peak} instead of {base_peak}, for {cost}.",
        "unclear" if row["verdict"] == UNCLEAR else "difference", value=capital(CHECKPOINT.words(row[CHECKPOINT.key])),
        place=config_in_words(row.to_dict() | {CHECKPOINT.key: CHECKPOINT.default}, named), peak=memory(row[peak]),
        base_peak=memory(row[f"base_{peak}"]),
        cost=f"an {UNCLEAR} difference in time" if row["verdict"] == UNCLEAR else more_time,
    )  # fmt: skip


def _lowest_peak(memory_rows: pd.DataFrame) -> list[Claim]:
    """The values with the lowest peak, these peaks and the largest error of their predictions."""
    column = column_with_values(memory_rows)
    rows = memory_rows[memory_rows[column].notna()]
    if rows.empty:
        return []
    lowest = rows.loc[rows.groupby(keys_without(CHECKPOINT.key), sort=False)[column].idxmin()]
    base = CHECKPOINT.default
    values = ["without checkpoints" if value == base else CHECKPOINT.words(value) for value in lowest[CHECKPOINT.key]]
    errors = (lowest["predicted_peak_bytes"] / lowest[column] - 1).astype("float64").abs().dropna()
    predicted = f", predicted to within {percent(errors.max())}" if len(errors) else ""
    text = "The peak is lowest {values}: {peaks}{predicted}."
    peaks = interval(lowest[column], memory)
    return [Claim(text, values=leaders(values, noun="configuration"), peaks=peaks, predicted=predicted)]


def _time_ratios(steps: pd.DataFrame, checkpointed: int) -> list[Claim]:
    """How many times as long a step takes with checkpoints, and how much of that the FLOPs explain; the table has each
    run. `steps` has the runs that were also measured without, `checkpointed` is the number of complete ones."""
    if steps.empty:
        return []
    ideal, unclear = 1 / steps["ideal_by_flops"].dropna(), int((steps["verdict"] == UNCLEAR).sum())
    flops = f"; the FLOPs predict {interval(ideal, significant)} times" if len(ideal) else ""
    also = f'; {UNCLEAR} in {of_all(unclear, len(steps), "run")} (marked "?")' if unclear else ""
    of_compared = f" in the {len(steps)} of {checkpointed} runs that were also measured without"
    some = of_compared if len(steps) < checkpointed else ""
    text = "With checkpoints, a step takes {times} times as long as without{some}{flops}{also}."
    times = interval(1 / steps["speed_up"], significant)
    return [Claim(text, "difference", times=times, some=some, flops=flops, also=also)]


def _recomputation(checkpointed: pd.DataFrame, measured: Measured) -> list[Claim]:
    shares = checkpointed["recomputed_share"].dropna()
    text = "Recomputation takes {shares} of the {time} of a step."
    return [Claim(text, shares=interval(shares, percent), time=measured.words.time)] if len(shares) else []


def _fitting_values(memory_rows: pd.DataFrame) -> list[Claim]:
    """Each configuration that runs out of memory without checkpoints, with its modes, and the values with which it fits
    in all of these: more than MAX_NAMED as a number."""
    failed = memory_rows[(memory_rows[CHECKPOINT.key] == CHECKPOINT.default) & (memory_rows["status"] == OUT_OF_MEMORY)]
    keys, modes = keys_without(CHECKPOINT.key), MODE.key if memory_rows[MODE.key].nunique() > 1 else None
    claims = []
    for _, rows in failed.groupby(keys_without(CHECKPOINT.key, MODE.key), sort=False):
        tried = memory_rows[memory_rows[CHECKPOINT.key] != CHECKPOINT.default].merge(rows[keys], on=keys)
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
    memory_rows = measured.tables["checkpoint_memory"]
    steps = gains.whole_steps(measured.tables["checkpoint_times"]).set_index("run").to_dict("index")

    def times_as_long(row: dict) -> str:
        step = steps.get(row["run"])
        return ratio(1 / step["speed_up"]) + (" ?" if step["verdict"] == UNCLEAR else "") if step else ABSENT

    def by_flops(row: dict) -> str:
        step = steps.get(row["run"])
        return ratio(1 / step["ideal_by_flops"]) if step else ABSENT

    columns = (
        ("step, ms", lambda row: text_or_status(with_spread(row["mean_ms"], row["std_ms"]), row["status"])),
        ("times as long", times_as_long),
        ("by FLOPs", by_flops),
        *columns_with_values(memory_rows, MEMORY_HEADINGS, memory),
        ("recomputation", lambda row: percent(row["recomputed_share"])),
    )
    return rows_table(memory_rows, (*gains.LEADING_KEYS, CHECKPOINT.key), columns)
