"""Sentences on one dimension: how many times as fast steps and phases are at its other values than at its default."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from profile_grid.quantities import interval, ratio
from profile_grid.study.dimensions import Dimension
from profile_grid.tables.ideal import BOUNDS
from profile_grid.tables.names import FORWARD, MAIN_PHASES, WHOLE_STEP
from profile_grid.tables.wording import PASSES, capital, extremes, listed, places

SLOWER = 0.98  # a speed-up below is told as a loss


def gain_sentences(own: pd.DataFrame, dimension: Dimension, base: str) -> list[str]:
    """How many times as fast whole steps are by mode, where that is a loss, and by phase. `own` are the rows of one
    value in a table of `times_beside_base`; `base` are the words for the default: "in fp32"."""
    return [*steps_sentences(own, dimension, base), *_phases(own)]


def steps_sentences(own: pd.DataFrame, dimension: Dimension, base: str) -> list[str]:
    """The same without the phases."""
    value, alone = capital(dimension.words(own[dimension.key].iloc[0])), without(own, dimension)
    steps = f"{value}, times as fast as {base}: {extremes_by_mode(alone, 'speed_up', _gain)}."
    return [steps, *slower_sentence(alone, base)]


def without(rows: pd.DataFrame, dimension: Dimension) -> pd.DataFrame:
    """The rows as at the dimension's default, which no words tell: for a sentence that has told the value already."""
    return rows.assign(**{dimension.key: dimension.default})


def extremes_by_mode(own: pd.DataFrame, column: str, text: Callable[[object], str]) -> str:
    """The extremes of a column of whole steps for each mode: "the forward pass × 2.1 (small at …) to …"."""
    steps = own[own["phase"] == WHOLE_STEP]
    return listed(
        [f"{PASSES[mode]} {extremes(rows, column, text)}" for mode, rows in steps.groupby("mode", sort=False)]
    )


def slower_sentence(own: pd.DataFrame, base: str) -> list[str]:
    """Where it is no gain."""
    steps = own[own["phase"] == WHOLE_STEP]
    slow = steps[steps["speed_up"] < SLOWER]
    return [] if slow.empty else [f"Slower than {base}: {places(slow)}."]


def ideal_sentence(times: pd.DataFrame, base: str) -> list[str]:
    """What the data sheet allows whole steps at most, where its peaks are known."""
    steps = times[(times["phase"] == WHOLE_STEP) & times["ideal_by_flops"].notna()]
    if steps.empty:
        return []
    by_flops, by_bytes = (interval(steps[f"ideal_{bound}"], ratio) for bound in BOUNDS)
    return [
        f"Times as fast as {base}, ideal would be {by_flops} by arithmetic (peak FLOP/s) and {by_bytes} by memory (peak"
        " bytes/s)."
    ]


def _phases(own: pd.DataFrame) -> list[str]:
    """The speed-ups of the phases, where a run has more than one."""
    phases = [phase for phase in MAIN_PHASES if phase in set(own["phase"])]
    if phases in ([], [FORWARD]):
        return []
    told = [f"{phase} {interval(own[own['phase'] == phase]['speed_up'], ratio)}" for phase in phases]
    return [f"By phase: {listed(told)}."]


def _gain(row) -> str:
    return ratio(row["speed_up"], row["speed_up_std"])
