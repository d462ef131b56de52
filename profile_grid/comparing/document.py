"""A comparison as a document in Markdown: what differs, then every cell with its verdict, then changes in captures."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.kernel_names.short import short_names
from kernel_tables.markdown import code
from profile_grid.comparing.cells import TOO_FEW, VERDICTS
from profile_grid.comparing.sections import (
    cells_section,
    changes_section,
    energy_section,
    facts_section,
    memory_section,
)
from profile_grid.quantities import counted, percent, significant
from profile_grid.tables.claims import Claim
from profile_grid.tables.evidence import CONFIDENCE, FASTER, FEWEST_PROCESSES, RATE, SLOWER, UNTOLD
from profile_grid.tables.wording import listed, run_in_words

TITLE = "Before and after"
MAX_NAMED = 12
DEFINITIONS = (
    "- cell: a run that is compared between the two sides.\n"
    "- ratio: time of a step after ÷ before, each the geometric mean over processes of the median step; the interval"
    f" has {CONFIDENCE:.0%} confidence for this cell only.\n"
    "- slower, faster: by Welch's test of the logarithms of the times. The unit is the process, because steps of one"
    " process share clocks and memory. The p-value, adjusted for the number of cells (Benjamini and Hochberg), is below"
    f" {RATE:g}: at most {RATE:.0%} of these verdicts are expected to be wrong. Intervals are not adjusted, so one may"
    f" exclude 1 although the verdict is {UNTOLD}.\n"
    "- memory: the peak of all tensors, of one process per side.\n"
    "- energy: ± is the standard deviation between the windows of one process per side, so there is no verdict.\n"
    "- changes: from the captures of one process per side (of several GPUs: rank 0). Listed are changed numbers of"
    " launches, and times that changed by more than 1 %, 0.1 % of the step and two standard errors between steps.\n"
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
    return "\n\n".join([f"# {TITLE}", *as_markdown(summary(tables["cells"], tables["changes"])), *parts]) + "\n"


def as_markdown(claims: list[Claim]) -> list[str]:
    """The first claim as a paragraph, the others as a list."""
    return [claims[0], *(["\n".join(f"- {claim}" for claim in claims[1:])] if claims[1:] else [])]


def summary(cells: pd.DataFrame, changes: pd.DataFrame | None = None) -> list[Claim]:
    """The largest change, or that nothing changed; then the number of cells per verdict, the kernel that changed most,
    and whether more processes are needed."""
    if cells.empty:
        return [Claim("There is no cell to compare.", "missing")]
    changed = cells[cells["verdict"].isin((FASTER, SLOWER))]
    counts = cells["verdict"].value_counts()
    verdicts = listed([f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts])
    counts_claim = Claim("Of {cells}: {verdicts}.", "counted", cells=counted(len(cells), "cell"), verdicts=verdicts)
    claims = [counts_claim] if len(counts) > 1 else []
    lead = Claim("No change was detected in {cells}.", "untold", cells=counted(len(cells), "cell"))
    if len(changed):
        farthest = changed.loc[np.log(changed["ratio"]).abs().idxmax()]
        lead = _change(farthest)
        claims += _others(changed.drop(farthest.name)) + _kernel(farthest["run"], changes)
    return [lead, *claims, *_too_few(cells)]


def _change(row: pd.Series) -> Claim:
    amounts = [abs(row[name] - 1) for name in ("ratio", "ratio_low", "ratio_high")]
    return Claim(
        "{run}, is {amount} {verdict} ({low} to {high}).", "difference", run=run_in_words(row),
        amount=percent(amounts[0]), verdict=row["verdict"], low=percent(min(amounts[1:])), high=percent(max(amounts)),
    )  # fmt: skip


def _others(changed: pd.DataFrame) -> list[Claim]:
    runs = [f"{run_in_words(row)} × {significant(row['ratio'])}" for row in changed.head(MAX_NAMED).to_dict("records")]
    more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
    text = "Others that changed, after ÷ before: {named}{more}."
    return [Claim(text, "difference", named="; ".join(runs), more=more)] if runs else []


def _kernel(run: str, changes: pd.DataFrame | None) -> list[Claim]:
    """The kernel of a run whose time changed most between the captures."""
    if changes is None or not len(run_changes := changes[(changes["run"] == run) & (changes["level"] == "kernel")]):
        return []
    row = run_changes.loc[run_changes["ms_more"].abs().idxmax()]
    name = short_names(run_changes["name"].unique(), {})[row["name"]]
    before, after = significant(row["ms_before"]), significant(row["ms_after"])
    text = "There, the kernel that changed most is {name}: {before} → {after} ms."
    return [Claim(text, name=code(name), before=before, after=after)]


def _too_few(cells: pd.DataFrame) -> list[Claim]:
    """How many processes are needed, if a cell has too few."""
    text = "{processes} processes per side are needed: `timing: {setting}`."
    needed = Claim(text, "untold", processes=FEWEST_PROCESSES, setting=f"{{processes: {FEWEST_PROCESSES}}}")
    return [needed] if (cells["verdict"] == TOO_FEW).any() else []
