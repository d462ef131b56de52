"""A comparison as a document in Markdown: what differs, then every cell with its verdict, then changes in captures."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from profile_grid.comparing.cells import NOT_COMPARABLE, TOO_FEW, VERDICTS
from profile_grid.comparing.sections import (
    cells_section,
    changes_section,
    energy_section,
    facts_section,
    memory_section,
)
from profile_grid.comparing.statistics import CONFIDENCE, FEWEST_PROCESSES, RATE, fewest_for_one
from profile_grid.quantities import counted, significant
from profile_grid.tables.wording import listed, run_in_words

TITLE = "Before and after"
MAX_NAMED = 12
DEFINITIONS = (
    "- ratio: time of a step after ÷ before, each the median over processes of the median step; its interval has"
    f" {CONFIDENCE:.0%} confidence, by resampling processes and then their steps.\n"
    "- slower, faster: Mann-Whitney U of the processes' medians, exact, adjusted for all cells after Benjamini and"
    f" Hochberg, is below {RATE:g}: of all cells called so, no more than {RATE:.0%} are expected to be wrong. Steps of"
    f" one process share clocks and memory, so the unit is the process: below {FEWEST_PROCESSES} a side nothing is"
    " told, and there is no interval, since steps scatter less than processes.\n"
    "- memory: the most that tensors took at once, of one process a side.\n"
    "- energy: ± is the standard deviation between the windows of one process a side, so there is no verdict.\n"
    "- changes: from the captures, one process a side, of several GPUs that of the first: launches of a step, or a time"
    " that changed by more than 1 %, 0.1 % of the step and two standard errors between steps.\n"
    "- not compared: counters, accuracy, first steps and compilation, single ranks (the time of a step on several GPUs"
    " is that of the slowest), and grids of attention alone."
)


@dataclass(frozen=True)
class ComparisonSection:
    """One section: its anchor, its heading, and its Markdown."""

    anchor: str
    title: str
    text: str


def sections(tables: dict[str, pd.DataFrame]) -> list[ComparisonSection]:
    """The sections of a comparison, from its tables, without empty ones."""
    cells = tables["cells"]
    candidates = (
        ComparisonSection("differs", "What differs between the two", facts_section(tables["facts"])),
        ComparisonSection("cells", "Cells", cells_section(cells)),
        ComparisonSection("memory", "Memory", memory_section(cells)),
        ComparisonSection("energy", "Energy", energy_section(tables["energies"])),
        ComparisonSection("changes", "What changed in the captures", changes_section(cells, tables["changes"])),
        ComparisonSection("definitions", "Definitions", DEFINITIONS),
    )
    return [section for section in candidates if section.text]


def document(tables: dict[str, pd.DataFrame]) -> str:
    """The document of a comparison, from its tables."""
    parts = [f"## {section.title}\n\n{section.text}" for section in sections(tables)]
    return "\n\n".join([f"# {TITLE}", summary(tables["cells"]), *parts]) + "\n"


def summary(cells: pd.DataFrame) -> str:
    """The number of cells with each verdict, the ratios of those that changed, and whether more processes are
    needed."""
    if cells.empty:
        return "There is no cell to compare."
    counts = cells["verdict"].value_counts()
    verdicts = listed([f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts])
    changed = cells[~cells["verdict"].isin([NOT_COMPARABLE, TOO_FEW]) & (cells["p_adjusted"] < RATE)]
    named = [f"{run_in_words(row)}: × {significant(row.ratio)}" for row in changed.head(MAX_NAMED).itertuples()]
    others = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
    ratios = f" {'; '.join(named)}{others}." if named else ""
    return f"Of {counted(len(cells), 'cell')}: {verdicts}.{ratios}{_power(cells)}"


def _power(cells: pd.DataFrame) -> str:
    """A note that there are too few processes for the number of cells; empty if a change of one cell can be
    detected."""
    too_few = f" {FEWEST_PROCESSES} processes per side are needed: `timing: {{processes: {FEWEST_PROCESSES}}}`."
    tested = cells[cells["p"].notna()]
    needed = fewest_for_one(len(tested))
    least = tested[["processes_before", "processes_after"]].min().min()
    if tested.empty or least >= needed:
        return too_few if (cells["verdict"] == TOO_FEW).any() else ""
    return (
        f" With {least:.0f} processes a side a change that few of {len(tested)} cells have cannot be told, however"
        f" large it is: {needed} a side tell one cell alone."
    )
