"""A comparison as a document in Markdown: what differs, then every cell with its verdict, then what changed below."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from kernel_tables.markdown import Table, code, escaped, pipe_table
from profile_grid.comparing.cells import NOT_COMPARABLE, TOO_FEW, VERDICTS
from profile_grid.comparing.statistics import CONFIDENCE, FEWEST_PROCESSES, RATE
from profile_grid.quantities import ABSENT, GIBIBYTE, count, known, ratio, significant, with_spread
from profile_grid.study.dimensions import KEYS
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.wording import listed, run_in_words

ALWAYS = ("model", "context_length", "mode")
MOST_KERNELS = 5  # of one run
DEFINITIONS = (
    "Definitions:\n\n"
    "- ratio: time of a step after ÷ before, each the median over processes of the median step; in brackets an interval"
    f" with {CONFIDENCE:.0%} confidence, by resampling processes and then their steps.\n"
    "- slower, faster: Mann-Whitney U of the processes' medians, exact, adjusted for all cells after Benjamini and"
    f" Hochberg, is below {RATE:g}: of all cells called so, no more than {RATE:.0%} are expected to be wrong. Steps of"
    f" one process share clocks and memory, so the unit is the process: below {FEWEST_PROCESSES} a side nothing is"
    " told.\n"
    "- energy: ± is the standard deviation between the windows of one process a side, so there is no verdict.\n"
    "- changes below a cell are from its captures, one process a side: launches of a step, or a time that changed by"
    " more than 1 %, 0.1 % of the step and two standard errors between steps."
)


def document(facts: pd.DataFrame, cells: pd.DataFrame, energies: pd.DataFrame, changes: pd.DataFrame) -> str:
    """The document of a comparison, from its tables."""
    parts = ["# Before and after", summary(cells), *_facts(facts), *_cells(cells)]
    parts += [*_energies(energies), *_changes(cells, changes)]
    return "\n\n".join([*parts, DEFINITIONS]) + "\n"


def summary(cells: pd.DataFrame) -> str:
    """How many cells there are of each verdict, and the ratios of those that changed."""
    counts = cells["verdict"].value_counts()
    told = listed([f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts])
    changed = cells[~cells["verdict"].isin([NOT_COMPARABLE, TOO_FEW]) & (cells["p_adjusted"] < RATE)]
    named = [f"{run_in_words(row)}: × {significant(row.ratio)}" for row in changed.itertuples()]
    more = f" {'; '.join(named)}." if named else ""
    return f"Of {len(cells)} cells: {told}.{more}" if len(cells) else "There is no cell to compare."


def _facts(facts: pd.DataFrame) -> Iterator[str]:
    yield "## What differs between the two"
    if facts.empty:
        yield "Nothing that was recorded: machine, versions, source and configuration are the same."
        return
    rows = tuple(tuple(escaped(text) for text in row) for row in facts.itertuples(index=False))
    yield pipe_table(Table(("fact", "before", "after"), rows, first_right=99))


def _cells(cells: pd.DataFrame) -> Iterator[str]:
    yield "## Cells"
    shown = shown_dimensions(cells, ALWAYS)
    rows = tuple(_line(row, shown) for row in cells.to_dict("records"))
    headings = ("before, ms", "after, ms", "ratio", "p, adjusted", "processes", "memory, GiB", "verdict")
    yield pipe_table(Table((*headings_of(shown), *headings), rows, first_right=len(shown)))


def _line(row: dict, shown: list[str]) -> tuple[str, ...]:
    interval = f" ({significant(row['ratio_low'], 4)} to {significant(row['ratio_high'], 4)})"
    verdict = row["verdict"] + (f": {row['reason']}" if row["reason"] else "")
    return (
        *leading_cells(row, shown), significant(row["before_ms"], 4), significant(row["after_ms"], 4),
        f"{significant(row['ratio'], 4)}{interval}" if known(row["ratio"]) else ABSENT,
        f"{row['p_adjusted']:.2g}" if known(row["p_adjusted"]) else ABSENT,
        " / ".join(count(row[f"processes_{side}"]) for side in ("before", "after")),
        " / ".join(_gib(row[f"peak_{side}_bytes"]) for side in ("before", "after")), escaped(verdict),
    )  # fmt: skip


def _energies(energies: pd.DataFrame) -> Iterator[str]:
    if energies.empty:
        return
    yield "## Energy"
    shown, sides = shown_dimensions(energies, ALWAYS), ("before_", "")
    rows = tuple(
        (
            *leading_cells(row, shown),
            *(with_spread(row[f"{side}joules_per_step"], row[f"{side}joules_per_step_std"]) for side in sides),
            ratio(row["ratio"], row["ratio_std"]),
        )
        for row in energies.to_dict("records")
    )
    headings = ("before, J per step", "after, J per step", "ratio")
    yield pipe_table(Table((*headings_of(shown), *headings), rows, first_right=len(shown)))


def _gib(value) -> str:
    return significant(value / GIBIBYTE) if known(value) else ABSENT


def _changes(cells: pd.DataFrame, changes: pd.DataFrame) -> Iterator[str]:
    yield "## What changed in the captures"
    if changes.empty:
        yield "Nothing, or no cell was captured on both sides."
        return
    places = cells.drop_duplicates("run").set_index("run", drop=False)
    for run, own in changes.groupby("run", sort=False):
        yield f"### {run_in_words(places.loc[run, ['run', *KEYS]].to_dict())}"
        kept = own[(own["level"] != "kernel") | (own.groupby("level").cumcount() < MOST_KERNELS)]
        rows = tuple(map(_change, kept.to_dict("records")))
        yield pipe_table(Table(("level", "name", "change", "launches", "ms", "more, ms"), rows, first_right=3))


def _change(row: dict) -> tuple[str, ...]:
    launches, ms = (tuple(row[f"{figure}_{side}"] for side in ("before", "after")) for figure in ("launches", "ms"))
    arrows = " → ".join(map(count, launches)), " → ".join(map(significant, ms))
    return row["level"], code(row["name"], in_table=True), row["change"], *arrows, significant(row["ms_more"])
