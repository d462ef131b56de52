"""What the document of (j) says: sentences and tables. `memory_rows` are rows of the table `checkpoint_memory`, values
are values of the dimension `checkpoint`."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, interval, memory, percent, ratio, significant, with_spread
from profile_grid.questions.j_checkpoint.table import PEAK_COLUMNS, first_known_column
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
MAX_NAMED = 2  # sizes of checkpoints with which a configuration fits
MEMORY_HEADINGS = {
    "peak_allocated_bytes": "peak",
    "recorded_peak_bytes": "recorded peak",
    "recorded_kept_bytes": "kept, recorded",
}


def sentences(measured: Measured) -> list[Claim]:
    """(j) The largest saving and its cost; then what fits, the lowest peak, the cost in time, and recomputation."""
    steps, memory_rows = gains.whole_steps(measured.tables["checkpoint_times"]), measured.tables["checkpoint_memory"]
    if not (memory_rows["status"] == COMPLETE).any():
        return [NO_ANSWER]
    checkpointed = memory_rows[memory_rows[CHECKPOINT.key] != CHECKPOINT.default]
    lead = _largest_saving(checkpointed.merge(steps[["run", "speed_up", "verdict"]], on="run", how="left"))
    longer = _time_ratios(steps, complete_count=int((checkpointed["status"] == COMPLETE).sum()))
    fits, lowest = _fitting_values(memory_rows), _lowest_peak(memory_rows)
    return [*lead, *fits, *lowest, *longer, *_recomputation(checkpointed, measured)] or [NO_ANSWER]


def _largest_saving(memory_and_time: pd.DataFrame) -> list[Claim]:
    """The largest relative saving of memory, and how much longer that step takes; [] if no run has both numbers."""
    is_timed = memory_and_time["speed_up"].notna()
    for peak in PEAK_COLUMNS:
        shares = (memory_and_time[peak] / memory_and_time[f"base_{peak}"]).astype("float64").where(is_timed)
        if shares.notna().any():
            return [_saving(memory_and_time.loc[shares.idxmin()], peak, named_keys(memory_and_time))]
    return []


def _saving(row: pd.Series, peak: str, named: Sequence[str]) -> Claim:
    """The peak of a run, in the column `peak`, and the peak without checkpoints. `named`: as for config_in_words."""
    more_time = percent(1 / row["speed_up"] - 1) + " more time"
    return Claim(
        "{value}, {place} trains in {peak} instead of {base_peak}, for {cost}.",
        "unclear" if row["verdict"] == UNCLEAR else "difference", value=capital(CHECKPOINT.words(row[CHECKPOINT.key])),
        place=config_in_words(row.to_dict() | {CHECKPOINT.key: CHECKPOINT.default}, named), peak=memory(row[peak]),
        base_peak=memory(row[f"base_{peak}"]),
        cost=f"an {UNCLEAR} difference in time" if row["verdict"] == UNCLEAR else more_time,
    )  # fmt: skip


def _lowest_peak(memory_rows: pd.DataFrame) -> list[Claim]:
    """By configuration, the value with the lowest peak, and this peak."""
    column = first_known_column(memory_rows)
    rows = memory_rows[memory_rows[column].notna()]
    if rows.empty:
        return []
    lowest = rows.loc[rows.groupby(keys_without(CHECKPOINT.key), sort=False)[column].idxmin()]
    base = CHECKPOINT.default
    values = ["without checkpoints" if value == base else CHECKPOINT.words(value) for value in lowest[CHECKPOINT.key]]
    text, peaks = "The peak is lowest {values}: {peaks}.", interval(lowest[column], memory)
    return [Claim(text, values=leaders(values, noun="configuration"), peaks=peaks)]


def _time_ratios(steps: pd.DataFrame, *, complete_count: int) -> list[Claim]:
    """How many times as long a step takes with checkpoints, and how many times by the FLOPs. `steps`: of checkpointed
    runs that were also measured without checkpoints; `complete_count` counts all complete checkpointed runs."""
    if steps.empty:
        return []
    ideal, unclear_count = 1 / steps["ideal_by_flops"].dropna(), int((steps["verdict"] == UNCLEAR).sum())
    flops = f"; the FLOPs predict {interval(ideal, significant)} times" if len(ideal) else ""
    unclear = f'; {UNCLEAR} in {of_all(unclear_count, len(steps), "run")} (marked "?")' if unclear_count else ""
    of_compared = f" in the {len(steps)} of {complete_count} runs that were also measured without"
    some = of_compared if len(steps) < complete_count else ""
    text = "With checkpoints, a step takes {times} times as long as without{some}{flops}{also}."
    times = interval(1 / steps["speed_up"], significant)
    return [Claim(text, "difference", times=times, some=some, flops=flops, also=unclear)]


def _recomputation(checkpointed: pd.DataFrame, measured: Measured) -> list[Claim]:
    shares = checkpointed["recomputed_share"].dropna()
    text = "Recomputation takes {shares} of the {time} of a step."
    return [Claim(text, shares=interval(shares, percent), time=measured.words.time)] if len(shares) else []


def _fitting_values(memory_rows: pd.DataFrame) -> list[Claim]:
    """Each configuration that runs out of memory without checkpoints, with the modes in which it does, and the values
    with which it fits in all of these modes. Instead of more than MAX_NAMED values, their number."""
    is_default, keys = memory_rows[CHECKPOINT.key] == CHECKPOINT.default, keys_without(CHECKPOINT.key)
    failed = memory_rows[is_default & (memory_rows["status"] == OUT_OF_MEMORY)]
    has_modes, claims = memory_rows[MODE.key].nunique() > 1, []
    for _, rows in failed.groupby(keys_without(CHECKPOINT.key, MODE.key), sort=False):  # rows of different modes
        tried = memory_rows[~is_default].merge(rows[keys], on=keys)  # the same configuration and modes
        fits = tried[tried["status"] == COMPLETE]
        mode_counts = fits[CHECKPOINT.key].value_counts()
        values = [value for value in pivoting.sorted_values(fits, CHECKPOINT.key) if mode_counts[value] == len(rows)]
        sizes = CHECKPOINT.words(listed(values[:MAX_NAMED]))
        if len(values) > MAX_NAMED:
            number = of_all(len(values), tried[CHECKPOINT.key].nunique(), "size", "sizes")
            sizes = f"with {number} of checkpoints that were tried"
        claims.append(
            Claim(
                "Without checkpoints, {place} runs out of memory{modes}{remedy}.", "counted",
                place=config_in_words(rows.iloc[0].to_dict()),
                modes=f" in {listed([PASSES[mode] for mode in rows[MODE.key]])}" if has_modes else "",
                remedy=f"; it fits {sizes}" if values else "",
            )
        )  # fmt: skip
    return claims


def tables(measured: Measured) -> list[Part]:
    """(j) Time and memory of each training run."""
    time = measured.words.time
    text = f"Time of a step without a profiler, memory, and the share of recomputation in its {time}"
    return [(text, _time_and_memory_table(measured))]


def _time_and_memory_table(measured: Measured) -> MarkdownTable:
    """One line per training run, including those without checkpoints: its step, or why there is none; its time and
    FLOPs ÷ those without checkpoints; its memory as far as known; and the share of GPU time that recomputes."""
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
