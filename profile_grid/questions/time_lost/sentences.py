"""The sentences of the diagnosis: what costs most in how many runs, and whether remedies gained what was said."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import code, escaped
from profile_grid.quantities import interval, percent, significant
from profile_grid.questions.time_lost.bounds import at_most
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import capital, leaders, listed, of_all, places, run_in_words

MOST_NAMED = 3
NOT_DIAGNOSED = "Not answered: no capture of these runs was diagnosed."


def sentences(measured: Measured) -> list[str]:
    """What costs most, what every rule says in how many runs, which rules cannot tell, and how the bounds held."""
    found = measured.tables["time_lost"]
    traced = [_per_launch(own, measured) for _, own in measured.tables["host_per_launch"].groupby("run", sort=False)]
    if found.empty:
        return [NOT_DIAGNOSED, *traced]
    said, runs = found[~found["abstained"].astype(bool)], found["run"].nunique()
    return [*_largest(said, runs), *_abstaining(found), *_held(measured.tables["predictions"]), *traced]


def _largest(said: pd.DataFrame, runs: int) -> list[str]:
    if said.empty:
        return [f"No rule of the diagnosis finds anything in {of_all(runs, runs, 'run')}."]
    first = said.drop_duplicates("run")
    most = leaders([code(name) for name in first["code"]])
    gain = interval(at_most(first)["percent"] / 100, percent)
    lead = f"{capital(most)} could gain most: at most {gain} of a step."
    quiet = runs - len(first)
    return [lead, *([f"Nothing is found in {of_all(quiet, runs, 'run')}."] if quiet else [])]


def _abstaining(found: pd.DataFrame) -> list[str]:
    """The rules that cannot tell, which is not the same as finding nothing, by their reason."""
    silent, every = found[found["abstained"].astype(bool)], found["run"].nunique()
    told = []
    for message, rows in silent.groupby("message", sort=False, observed=True):
        some = rows["run"].nunique()
        where = f" in {of_all(some, every, 'run')}" if some < every else ""
        told.append(f"{escaped(str(message))} ({_named(list(dict.fromkeys(rows['code'])))}{where})")
    return [f"What cannot be told: {'; '.join(told)}."] if told else []


def _named(codes: list[str]) -> str:
    return listed([code(name) for name in codes]) if len(codes) <= MOST_NAMED else f"{len(codes)} rules"


def _held(predictions: pd.DataFrame) -> list[str]:
    if predictions.empty:
        return []
    broken = predictions[~predictions["holds"].astype(bool)]
    held = of_all(len(predictions) - len(broken), len(predictions), "remedy").replace("remedys", "remedies")
    told = f"No more was gained than was said with {held} that the grid holds"
    return [f"{told}; more with {places(broken)}." if len(broken) else f"{told}."]


def _per_launch(own: pd.DataFrame, measured: Measured) -> str:
    """What the host of a run does for each launch, over all phases that launch, and what of its Python takes most."""
    launches = own.drop_duplicates("phase")["launches"].sum()
    us = (own.groupby("doing", sort=False)["own_ms"].sum() * 1e3 / launches).sort_values(ascending=False)
    parts = listed([f"{significant(value)} {escaped(what)}" for what, value in us.head(MOST_NAMED).items()])
    told = f"In {run_in_words(own.iloc[0])} the host takes {significant(us.sum())} µs per launch when traced: {parts}."
    stacks = measured.tables["host_stacks"]
    first = stacks[stacks["run"] == own["run"].iloc[0]].head(1)
    for row in first.itertuples():
        told += f" In no call its Python is most often in {code(row.function)}, about"
        told += f" {significant(row.estimated_us_per_launch)} µs per launch."
    return told
