"""Claims and tables on the speed-ups of one dimension: of its other values over its default."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, counted, interval, known, ratio, significant, with_spread
from profile_grid.study.dimensions import CONTEXT_LENGTH, FULLEST_FIRST, MODE, MODEL, Dimension, keys_without
from profile_grid.tables import model_parts, pivoting
from profile_grid.tables.cells import lines_table, parts_table
from profile_grid.tables.evidence import FASTER, RELEVANT_DIFFERENCE, SLOWER, UNCLEAR, needed_processes
from profile_grid.tables.names import FORWARD, MAIN_PHASES, WHOLE_STEP
from profile_grid.tables.wording import PASSES, Claim, capital, config_in_words, median_note, of_all

LEADING_KEYS = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)


def whole_steps(times: pd.DataFrame) -> pd.DataFrame:
    """The rows on complete steps."""
    return times[times["phase"] == WHOLE_STEP]


def largest_gain(times: pd.DataFrame, dimension: Dimension, base: str, modes: Sequence[str] = FULLEST_FIRST) -> Claim:
    """The first sentence of an answer: the largest clear difference, and the median of all speed-ups; or that all are
    unclear, and how many processes would help. The difference is of the first of the `modes` that has a clear one; if
    `modes` is empty, of any. `times` is a table of `times_with_base`; `base` is the default in words: "in fp32"."""
    steps = whole_steps(times)
    clear = steps[steps["verdict"] != UNCLEAR]
    mode = next((mode for mode in modes if (clear["mode"] == mode).any()), None)
    clear = clear[clear["mode"] == mode] if modes else clear
    if clear.empty:
        text = "Whether a step is faster than {base} is {unclear} in {runs}: {needed}."
        runs = counted(len(steps), "run")
        if len(steps) == 1:
            row = steps.iloc[0].to_dict()
            text = "Whether {runs} is faster {value} than {base} is {unclear}: {needed}."
            runs = f"{PASSES[row['mode']]} of {config_in_words(row | {dimension.key: dimension.default})}"
        value = dimension.words(steps[dimension.key].iloc[0])
        return Claim(text, "unclear", base=base, unclear=UNCLEAR, runs=runs, value=value, needed=_needed(steps))
    speed_ups = steps["speed_up"]
    others = f"; all {len(steps)} speed-ups: {interval(speed_ups, ratio)}{median_note(speed_ups, ratio)}"
    largest = clear.loc[clear["speed_up"].where(clear["speed_up"] > 1, 1 / clear["speed_up"]).idxmax()]
    return Claim(
        "{value}, {step} of {place} {is_faster} {base}{others}.",
        "difference", value=capital(dimension.words(largest[dimension.key])), step=PASSES[largest["mode"]],
        # `value` names that dimension already
        place=config_in_words(largest.to_dict() | {dimension.key: dimension.default}),
        is_faster=_speed_up_in_words(largest["speed_up"]), base=base, others=others if len(steps) > 1 else "",
    )  # fmt: skip


def _speed_up_in_words(gain: float) -> str:
    return f"is {significant(gain)} times as fast as" if gain > 1 else f"takes {significant(1 / gain)} times as long as"


def counts_by_value(times: pd.DataFrame, dimension: Dimension) -> list[Claim]:
    """For each other value, the numbers of runs in which a step is faster, slower, or not clearly different; empty for
    one value that is always unclear."""
    steps = whole_steps(times)
    values = pivoting.sorted_values(steps, dimension.key)
    if len(values) == 1 and (steps["verdict"] == UNCLEAR).all():
        return []  # the lead says it
    return [verdict_counts(steps[steps[dimension.key] == value], dimension.words(value)) for value in values]


def verdict_counts(steps: pd.DataFrame, heading: str) -> Claim:
    """The numbers of rows in which a step is faster, slower, or not clearly different, after a heading."""
    verdicts = []
    for verdict in (FASTER, SLOWER, UNCLEAR):
        rows = steps[steps["verdict"] == verdict]
        if len(rows):
            # The first count names the total: "faster in 3 of 5 runs (...), slower in 2 (...)".
            runs = str(len(rows)) if verdicts else of_all(len(rows), len(steps), "run")
            amounts = 'marked "?"' if verdict == UNCLEAR else interval(rows["speed_up"], ratio)
            verdicts.append(f"{verdict} in {runs} ({amounts})")
    all_unclear = (steps["verdict"] == UNCLEAR).all()
    return Claim(
        "{which}: {verdicts}{needed}.", "unclear" if all_unclear else "difference", which=capital(heading),
        verdicts=", ".join(verdicts), needed=f"; {_needed(steps)}" if all_unclear else "",
    )  # fmt: skip


def _needed(unclear: pd.DataFrame) -> str:
    """How many processes per run would show RELEVANT_DIFFERENCE with probability POWER, by the largest spread."""
    process_spread = float(unclear["spread"].max()) / 2**0.5  # `spread` is of both sides together
    needed, difference = needed_processes(process_spread), f"{100 * RELEVANT_DIFFERENCE:.0f} %"
    return f"{needed} processes per run would probably show a difference of {difference}"


def steps_table(times: pd.DataFrame, dimension: Dimension) -> MarkdownTable:
    """One line per configuration: its step at the default, then its time and speed-up at each other value. `times` is a
    table of `times_with_base`."""
    steps, columns = whole_steps(times), ["mean_ms", "speed_up", "verdict"]
    keys, values = keys_without(dimension.key), pivoting.sorted_values(steps, dimension.key)
    wide = pivoting.pivoted(steps, keys, dimension.key, columns)

    def cells(row: dict) -> list[str]:
        wide_row = wide.loc[tuple(row[key] for key in keys)]
        gains = [time_and_gain(*(wide_row[(name, value)] for name in columns)) for value in values]
        return [with_spread(row["base_mean_ms"], row["base_std_ms"]), *gains]

    headings = [f"{dimension.name_of(value)}, ms" for value in (dimension.default, *values)]
    return lines_table(steps.drop_duplicates(keys), LEADING_KEYS, headings, cells, hidden=(dimension.key,))


def phases_table(times: pd.DataFrame, dimension: Dimension) -> MarkdownTable:
    """One line per run with a backward pass: the speed-up of each phase."""
    phases = [phase for phase in MAIN_PHASES if phase in set(times["phase"])]
    rows = times[(times["mode"] != FORWARD) & times["phase"].isin(phases)]
    keys = [*keys_without(dimension.key), dimension.key]
    wide = pivoting.pivoted(rows, keys, "phase", ["speed_up", "verdict"])

    def cells(row: dict) -> list[str]:
        wide_row = wide.loc[tuple(row[key] for key in keys)]
        return [_marked_ratio(wide_row.get(("speed_up", phase)), wide_row.get(("verdict", phase))) for phase in phases]

    return lines_table(rows.drop_duplicates(keys), (*LEADING_KEYS, dimension.key), phases, cells)


def parts_tables(parts: pd.DataFrame) -> list[tuple[str, MarkdownTable]]:
    """(title, table) for each combination of the dimensions other than model and mode that vary: the speed-up of the
    GPU time of each part, with a column per model. Empty if no kernel is inside the range of a part. `parts` are the
    rows of one phase of `parts_with_base`."""
    groups = pivoting.split(model_parts.rows_in_parts(parts), (MODEL.key, MODE.key))
    return [(title, parts_table(rows, "base_share", lambda row: ratio(row["speed_up"]))) for title, rows in groups]


def time_and_gain(ms: float, gain: float, verdict: str) -> str:
    """A time in ms with its speed-up over the default: "12.3 (× 1.53)", or "12.3 (× 1.03 ?)" if that is unclear."""
    return f"{significant(ms)} ({_marked_ratio(gain, verdict)})" if known(ms) else ABSENT


def _marked_ratio(gain: float, verdict: str) -> str:
    return ratio(gain) + (" ?" if verdict == UNCLEAR else "")
