"""Claims on one dimension: speed-ups at its values compared with its default."""

from collections.abc import Sequence

import pandas as pd

from profile_grid.quantities import interval, ratio, significant
from profile_grid.study.dimensions import FULLEST_FIRST, Dimension
from profile_grid.tables.claims import Claim
from profile_grid.tables.evidence import FASTER, SLOWER, UNTOLD, WORTH, processes_for
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.pivoting import sorted_values
from profile_grid.tables.wording import PASSES, capital, of_all, runs_in_words, where


def whole_steps(times: pd.DataFrame) -> pd.DataFrame:
    """The rows on complete steps."""
    return times[times["phase"] == WHOLE_STEP]


def largest_gain(times: pd.DataFrame, dimension: Dimension, base: str, modes: Sequence[str] = FULLEST_FIRST) -> Claim:
    """The lead: the largest clear difference, in the first of the modes that has any, and the median of all. `times` is
    a table as of `times_with_base`, `base` the words for the default: "in fp32"."""
    steps = whole_steps(times)
    clear = steps[steps["verdict"] != UNTOLD]
    mode = next((mode for mode in modes if (clear["mode"] == mode).any()), None)
    clear = clear[clear["mode"] == mode] if modes else clear
    if clear.empty:
        text = "Whether a step is faster than {base} is {untold} in {runs}: {needed}."
        return Claim(text, "untold", base=base, untold=UNTOLD, runs=_runs(len(steps)), needed=_needed(steps))
    median = f"; the median of {len(steps)} runs is {ratio(steps['speed_up'].median())}" if len(steps) > 1 else ""
    far = clear.loc[clear["speed_up"].where(clear["speed_up"] > 1, 1 / clear["speed_up"]).idxmax()]
    return Claim(
        "{value}, {step} of {place} {is_faster} {base}{median}.",
        "difference", value=capital(dimension.words(far[dimension.key])), step=PASSES[far["mode"]],
        place=where(far.to_dict() | {dimension.key: dimension.default}), is_faster=_speed(far["speed_up"]), base=base,
        median=median,
    )  # fmt: skip


def _speed(gain: float) -> str:
    return f"is {significant(gain)} times as fast as" if gain > 1 else f"takes {significant(1 / gain)} times as long as"


def _runs(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"


def by_value(times: pd.DataFrame, dimension: Dimension) -> list[Claim]:
    """For each value the number of runs in which a step is faster, slower, or not clearly different from the
    default."""
    steps = whole_steps(times)
    values = sorted_values(steps, dimension.key)
    return [
        verdict_counts(
            steps[steps[dimension.key] == value].assign(**{dimension.key: dimension.default}), dimension.words(value)
        )
        for value in values
    ]


def verdict_counts(steps: pd.DataFrame, which: str) -> Claim:
    """The number of rows in which a step is faster, slower, or not clearly different."""
    parts = [_part(steps[steps["verdict"] == verdict], steps, verdict) for verdict in (FASTER, SLOWER)]
    unclear = steps[steps["verdict"] == UNTOLD]
    if len(unclear):
        parts.append(f"{UNTOLD} in {_runs(len(unclear))} ({runs_in_words(unclear)}), where {_needed(unclear)}")
    return Claim(
        "{which}: {verdicts}.", "difference" if len(unclear) < len(steps) else "untold",
        which=capital(which), verdicts="; ".join(filter(None, parts)),
    )  # fmt: skip


def _part(rows: pd.DataFrame, every: pd.DataFrame, verdict: str) -> str:
    if rows.empty:
        return ""
    names = f", {runs_in_words(rows)}" if verdict == SLOWER else ""
    return f"{verdict} in {of_all(len(rows), len(every), 'run')} ({interval(rows['speed_up'], ratio)}{names})"


def _needed(unclear: pd.DataFrame) -> str:
    """The number of processes per side that would show a difference of WORTH in these runs."""
    needed = processes_for(float(unclear["spread"].max()) / 2**0.5)
    return f"{needed} processes per run would show a difference of {100 * WORTH:.0f} %"
