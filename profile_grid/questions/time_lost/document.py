"""What the document on lost time says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import ABSENT, count, interval, percent, significant
from profile_grid.questions.time_lost.bounds import at_most
from profile_grid.study.dimensions import BY_KEY
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import LED_BY, headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import capital, leaders, listed, of_all, places, run_in_words

MOST_NAMED = 3
NOT_DIAGNOSED = "Not answered: no capture of these runs was diagnosed."
ALWAYS = (*LED_BY, "mode")
MOST = 4  # findings of a run
MOST_FUNCTIONS = 10


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


def findings_table(measured: Measured) -> MarkdownTable:
    """One line per run: what its diagnosis finds, largest gain first, each with the most that mending it gains."""
    found = measured.tables["time_lost"]
    said = at_most(found[~found["abstained"].astype(bool)])
    shown = shown_dimensions(measured.runs, ALWAYS)
    lines = []
    for run in measured.runs.to_dict("records"):
        own = said[said["run"] == run["run"]]
        told = [_told(row) for row in own.head(MOST).itertuples()]
        more = [f"and {len(own) - MOST} more"] if len(own) > MOST else []
        diagnosed = run["run"] in set(found["run"])
        lines.append((*leading_cells(run, shown), ", ".join([*told, *more]) or ("nothing" if diagnosed else ABSENT)))
    return MarkdownTable((*headings_of(shown), "found, with the most that it could gain"), tuple(lines), first_right=99)


def predictions_table(measured: Measured) -> MarkdownTable | None:
    """One line per remedy that the grid holds: the most that was said to be gained, and what was; None without one."""
    rows = measured.tables["predictions"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, ALWAYS)
    lines = tuple(
        (
            *leading_cells(row, shown), BY_KEY[row["remedy"]].heading, _codes(row["codes"]),
            f"{significant(row['predicted_ms'])} ({percent(row['predicted_percent'] / 100)})",
            f"{significant(row['measured_ms'])} ({percent(row['measured_percent'] / 100)})",
            "yes" if row["holds"] else "**no**",
        )
        for row in rows.to_dict("records")
    )  # fmt: skip
    headings = ("remedy", "for", "at most, ms (of a step)", "gained, ms (of a step)", "holds")
    return MarkdownTable((*headings_of(shown), *headings), lines, first_right=len(shown) + 2)


def host_tables(measured: Measured) -> list[tuple[str, MarkdownTable, MarkdownTable | None]]:
    """Of each run whose host was traced the name, what its launching threads do per launch, and in which functions."""
    told, stacks = measured.tables["host_per_launch"], measured.tables["host_stacks"]
    return [
        (name, _per_launch_cells(own), _stacks(stacks[stacks["run"] == name]))
        for name, own in told.groupby("run", sort=False)
    ]


def _per_launch_cells(own: pd.DataFrame) -> MarkdownTable:
    """One line per phase that launches: microseconds of its launching thread per launch, by what it does."""
    doing = list(own.groupby("doing", sort=False)["own_ms"].sum().sort_values(ascending=False).index)
    lines = []
    for phase, rows in own.groupby("phase", sort=False):
        us = rows.set_index("doing")["us_per_launch"]
        launches, ms = rows["launches"].iloc[0], rows["own_ms"].sum()
        cells = (us.get(what, 0.0) for what in doing)
        figures = (count(launches), significant(ms), significant(us.sum()), *map(significant, cells))
        lines.append((escaped(phase), *figures))
    headings = ("phase", "launches", "ms", "µs per launch", *(f"{what}, µs" for what in doing))
    return MarkdownTable(headings, tuple(lines), first_right=1)


def _stacks(own: pd.DataFrame) -> MarkdownTable | None:
    """One line per function of the most sampled; None where no stack was sampled outside of calls."""
    if own.empty:
        return None
    lines = []
    for row in own.head(MOST_FUNCTIONS).itertuples():
        figures = count(row.samples), count(row.samples_in_calls), significant(row.estimated_ms)
        lines.append((code(row.function, in_table=True), *figures, significant(row.estimated_us_per_launch)))
    headings = ("function", "samples", "in calls", "about, ms", "about, µs per launch")
    return MarkdownTable(headings, tuple(lines), first_right=1)


def _told(row) -> str:
    return f"{code(row.code, in_table=True)} {significant(row.ms)} ms ({percent(row.percent / 100)})"


def _codes(codes: str) -> str:
    return ", ".join(code(one, in_table=True) for one in codes.split(", ") if one) or "no rule spoke"
