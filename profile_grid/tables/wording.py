"""What the sentences of all questions share: how they name runs, lists and extremes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import interval, known, percent
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import EVERY_DIMENSION, MODE, MODES
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.classes import family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD

PASSES = {mode: name if "+" in name else f"the {name}" for mode, name in MODES.items()}
TRAINING = {mode: name for mode, name in PASSES.items() if mode != FORWARD}
NO_FORWARD_PASS = "Not answered: no capture of a forward pass is whole."


def where(row) -> str:
    """The place of a row among the dimensions but the mode, in Markdown: "small at context 512", "small at context 512
    in bf16"; what is at its default is not named."""
    values = _values(row)
    named = ((one, values.get(one.key)) for one in EVERY_DIMENSION if one is not MODE)
    return " ".join(escaped(one.words(value)) for one, value in named if known(value) and value != one.default)


def run_in_words(row) -> str:
    """A whole run in Markdown: "small at context 512, training step"."""
    mode = _values(row)[MODE.key]
    return f"{where(row)}, {escaped(MODE.name_of(mode))}" if known(mode) else where(row)


def labelled(rows: pd.DataFrame) -> Callable[[object], str]:
    """The function that labels one of these rows so that rows of two runs have two labels: with its mode where the rows
    differ in that."""
    return run_in_words if rows[MODE.key].nunique() > 1 else where


def _values(row) -> Mapping:
    """The values of a row by column, be it a named tuple, a dict or a Series."""
    return row._asdict() if hasattr(row, "_asdict") else row


def places(rows: pd.DataFrame, most: int = 4) -> str:
    """The configurations of these rows, whatever their modes, in words: so many by name and the others counted."""
    names = list(dict.fromkeys(where(row) for row in rows.itertuples()))
    if len(names) <= most:
        return listed(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def capital(text: str) -> str:
    """The text with a capital letter in front."""
    return text[:1].upper() + text[1:]


def listed(words: list[str]) -> str:
    """Words as an English list: "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""


def of_all(some: int, every: int, noun: str = "configuration") -> str:
    """How many of how many: "all 20 configurations", "both configurations", "3 of 20 configurations"."""
    if every == 1:
        return f"the one {noun}" if some else f"not the one {noun}"
    if every == some == 2:
        return f"both {noun}s"
    return f"all {every} {noun}s" if some == every else f"{some} of {every} {noun}s"


def in_some(some: pd.DataFrame, every: pd.DataFrame) -> str:
    """In how many of them, where there are several: " in 3 of 20 configurations"."""
    return f" in {of_all(len(some), len(every))}" if len(every) > 1 else ""


def extremes(rows: pd.DataFrame, column: str, text: Callable[[object], str]) -> str:
    """The smallest and the largest row in words, each with its label: "3.1 ms (small at …) to 27 ms (large at …)"."""
    present, label = rows[rows[column].map(known)], labelled(rows)
    low, high = present.loc[present[column].astype(float).idxmin()], present.loc[present[column].astype(float).idxmax()]
    if len(present) == 1:
        return f"{text(low)} ({label(low)})"
    if text(low) == text(high):
        return text(low)
    return f"{text(low)} ({label(low)}) to {text(high)} ({label(high)})"


def leaders(names: list[str], most: int = 3) -> str:
    """Who leads in how many configurations: "**sgemm 128×64 tn** in 12 of 20 configurations, **reduce sum** in 8"."""
    ranking = Counter(names).most_common()
    if not ranking:
        return ""
    if len(ranking) == 1:
        return f"{ranking[0][0]}" + (f" in {of_all(len(names), len(names))}" if len(names) > 1 else "")
    first, *rest = ranking[:most]
    told = [f"{first[0]} in {of_all(first[1], len(names))}", *(f"{name} in {number}" for name, number in rest)]
    left = sum(number for _, number in ranking[most:])
    return listed([*told, f"others in {left}"] if left else told)


def stand_in(measured: Measured) -> list[str]:
    """That the forward pass of another mode stands in, where the grid has no run of the forward pass alone."""
    if measured.inference_mode == FORWARD:
        return []
    mode = MODES[measured.inference_mode]
    return [f"The grid has no run of the forward pass alone: the one inside the {mode} stands in."]


def no_kernels_sentence(measured: Measured) -> str:
    """That no kernels were captured on this machine, and why, as far as the runs say."""
    runs = measured.runs
    not_captured = runs[CAPTURE.status_column] != COMPLETE  # what else may lack a reason is another matter
    reasons = [*runs.loc[not_captured, "reason"].dropna(), *runs["note"].dropna()]
    why = "; ".join(dict.fromkeys(str(reason) for reason in reasons)) or "the runs give no reason"
    by = f" by {measured.machine.profiler}" if measured.machine.backend else ""
    return f"Not answered: no {measured.words.kernels} were captured{by} ({escaped(why)})."


def top_of(table: pd.DataFrame, scope: str) -> pd.DataFrame:
    """The first kernel of every run in this scope."""
    return table[(table["scope"] == scope) & (table["rank"] == 1)]


def fused_sentence(measured: Measured, classes: pd.DataFrame) -> list[str]:
    """That fused attention kernels hold matrix multiplies which no share of those counts, where there are any in the
    forward pass; `classes` has its shares by class."""
    shares = family_shares(classes).query("family == 'attention' and share > 0")
    if shares.empty:
        return []
    share = interval(shares["share"], percent)
    return [
        f"Fused attention {measured.words.kernels} ({share} of the forward pass) hold matrix multiplies and softmax in"
        " one; they count as attention, not as matrix multiplies."
    ]
