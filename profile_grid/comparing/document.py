"""A comparison as a document in Markdown: what differs, every run with its verdict, changes in the captures."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.kernel_names.short import short_names
from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.comparing.cells import NOT_COMPARABLE, TOO_FEW, VERDICTS
from profile_grid.documents.definitions import needed_for
from profile_grid.quantities import ABSENT, GIBIBYTE, count, counted, known, percent, ratio, significant, with_spread
from profile_grid.study.dimensions import KEYS
from profile_grid.tables.cells import lines_table, rows_table
from profile_grid.tables.evidence import CONFIDENCE, FALSE_RATE, FASTER, FEWEST_PROCESSES, SLOWER, UNCLEAR
from profile_grid.tables.wording import Claim, listed, of_all, run_in_words

TITLE = "Before and after"
MAX_NAMED = 12  # changed runs in a sentence
DEFINITIONS = (  # "[if PATTERN]": only if the pattern matches the document
    "- ratio: time of a step after ÷ before, each the geometric mean over processes of the median step; the interval"
    f" has {100 * CONFIDENCE:.0f} % confidence for this run only.\n"
    "- slower, faster: by Welch's test of the logarithms of the times. The unit is the process, because steps of one"
    " process share clocks and memory. The p-value, adjusted for the number of runs (Benjamini and Hochberg), is below"
    f" {FALSE_RATE:g}: at most {100 * FALSE_RATE:.0f} % of these verdicts are expected to be wrong. Intervals are not"
    f" adjusted, so an interval may exclude 1 although the verdict is '{UNCLEAR}'.\n"
    "- [if GiB|MiB] memory: the peak of all tensors, of one process per side.\n"
    "- [if J per step] energy: ± is the standard deviation between the windows of one process per side, so there is no"
    " verdict.\n"
    "- [if \\| level ] changes: from the captures of one process per side (of several GPUs: rank 0). The tables list"
    " numbers of launches that changed, and times that changed by more than 1 %, by more than 0.1 % of the step, and"
    " by more than two standard errors.\n"
    "- not compared: counters, accuracy, first steps and compilation, single ranks (the time of a step on several GPUs"
    " is that of the slowest), and attention sweeps."
)
LEADING_KEYS = ("model", "context_length", "mode")
MAX_KERNELS = 5  # of one run
MIN_BYTES = 2**20  # of a reported change of peak memory


@dataclass(frozen=True)
class ComparisonSection:
    anchor: str
    title: str
    text: str  # in Markdown


def sections(tables: dict[str, pd.DataFrame]) -> list[ComparisonSection]:
    """The sections of a comparison that have text, from its tables; the last are definitions."""
    cells = tables["cells"]
    candidates = (
        ComparisonSection("differs", "What differs between the two", facts_section(tables["facts"])),
        ComparisonSection("cells", "Times", cells_section(cells)),
        ComparisonSection("memory", "Memory", memory_section(cells)),
        ComparisonSection("energy", "Energy", energy_section(tables["energies"])),
        ComparisonSection("changes", "What changed in the captures", "\n\n".join(_changes(cells, tables["changes"]))),
    )
    shown = [section for section in candidates if section.text]
    definitions = needed_for(DEFINITIONS, "\n".join(section.text for section in shown))
    return [*shown, ComparisonSection("definitions", "Definitions", definitions)]


def document(tables: dict[str, pd.DataFrame]) -> str:
    parts = [f"## {section.title}\n\n{section.text}" for section in sections(tables)]
    return "\n\n".join([f"# {TITLE}", *as_markdown(summary(tables["cells"], tables["changes"])), *parts]) + "\n"


def as_markdown(claims: list[Claim]) -> list[str]:
    """The first claim as a paragraph, the others as a list."""
    return [claims[0], *(["\n".join(f"- {claim}" for claim in claims[1:])] if claims[1:] else [])]


def summary(cells: pd.DataFrame, changes: pd.DataFrame | None = None) -> list[Claim]:
    """The largest change, or that nothing changed; then the number of runs per verdict, the other changes, and the
    kernel that changed most in the run of the largest change. If a run has too few processes, also how many it needs.
    Without `changes`, no kernel is named."""
    if cells.empty:
        return [Claim("There is no run to compare.", "missing")]
    runs, counts = counted(len(cells), "run"), cells["verdict"].value_counts()
    claims = []
    if len(counts) > 1:
        verdicts = listed([f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts])
        claims.append(Claim("Of {runs}: {verdicts}.", "counted", runs=runs, verdicts=verdicts))
    changed = cells[cells["verdict"].isin((FASTER, SLOWER))]
    if len(changed):
        largest = changed.loc[np.log(changed["ratio"]).abs().idxmax()]
        lead = _largest_change(largest)
        claims += _other_changes(changed.drop(largest.name)) + _changed_kernel(largest["run"], changes)
    else:
        lead = Claim("No change was detected in {runs}{within}.", "unclear", runs=runs, within=_interval_widths(cells))
    return [lead, *claims, *_needed_processes(cells)]


def _interval_widths(cells: pd.DataFrame) -> str:
    """How wide the intervals of the ratios are, since smaller changes could not be detected; "" if there are none."""
    ends = np.log(cells[["ratio_low", "ratio_high"]].dropna().astype("float64"))
    widths = np.expm1((ends["ratio_high"] - ends["ratio_low"]) / 2)
    if widths.empty:
        return ""
    widest = f" (median; at most ± {percent(widths.max())})" if len(widths) > 1 else ""
    return f"; the interval of a ratio is ± {percent(widths.median())}{widest}"


def _largest_change(row: pd.Series) -> Claim:
    amount, *ends = (percent(abs(row[name] - 1)) for name in ("ratio", "ratio_low", "ratio_high"))
    low, high = ends if row["verdict"] == SLOWER else reversed(ends)  # of a faster run, ratio_low is farther from 1
    text, run = "{run}, is {amount} {verdict} ({low} to {high}).", run_in_words(row)
    return Claim(text, "difference", run=run, amount=amount, verdict=row["verdict"], low=low, high=high)


def _other_changes(changed: pd.DataFrame) -> list[Claim]:
    runs = [f"{run_in_words(row)} × {significant(row['ratio'])}" for row in changed.head(MAX_NAMED).to_dict("records")]
    more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
    text = "Others that changed, after ÷ before: {named}{more}."
    return [Claim(text, "difference", named="; ".join(runs), more=more)] if runs else []


def _changed_kernel(run: str, changes: pd.DataFrame | None) -> list[Claim]:
    """The kernel of this run whose time changed most between the captures."""
    if changes is None:
        return []
    run_changes = changes[(changes["run"] == run) & (changes["level"] == "kernel")]
    if run_changes.empty:
        return []
    row = run_changes.loc[run_changes["ms_more"].abs().idxmax()]
    name = short_names(run_changes["name"].unique())[row["name"]]
    before, after = significant(row["ms_before"]), significant(row["ms_after"])
    text = "There, the kernel that changed most is {name}: {before} → {after} ms."
    return [Claim(text, name=code(name), before=before, after=after)]


def _needed_processes(cells: pd.DataFrame) -> list[Claim]:
    """How many processes are needed, if a run has too few."""
    text = "{processes} processes per side are needed: `timing: {setting}`."
    needed = Claim(text, "unclear", processes=FEWEST_PROCESSES, setting=f"{{processes: {FEWEST_PROCESSES}}}")
    return [needed] if (cells["verdict"] == TOO_FEW).any() else []


def facts_section(facts: pd.DataFrame) -> str:
    """The facts of the two measurements that differ."""
    if facts.empty:
        return "Nothing that was recorded: machine, versions, source and configuration are the same."
    rows = tuple(tuple(escaped(text) for text in row) for row in facts.itertuples(index=False))
    return pipe_table(MarkdownTable(("fact", "before", "after"), rows, first_right=3))


def cells_section(cells: pd.DataFrame) -> str:
    """Every run with its times, the ratio, and the verdict."""
    headings = ("before, ms", "after, ms", "ratio", "interval", "p, adjusted", "processes", "verdict")
    return pipe_table(lines_table(cells, LEADING_KEYS, headings, _time_cells))


def _time_cells(row: dict) -> tuple[str, ...]:
    low, high = (significant(row[f"ratio_{end}"], 4) for end in ("low", "high"))
    verdict = row["verdict"] + (f": {row['reason']}" if row["verdict"] == NOT_COMPARABLE else "")
    return (
        significant(row["before_ms"], 4), significant(row["after_ms"], 4),
        significant(row["ratio"], 4), f"{low} to {high}" if known(row["ratio_low"]) else ABSENT,
        f"{row['p_adjusted']:.2g}" if known(row["p_adjusted"]) else ABSENT,
        " / ".join(count(row[f"processes_{side}"]) for side in ("before", "after")), escaped(verdict),
    )  # fmt: skip


def memory_section(cells: pd.DataFrame) -> str:
    """The runs whose peak memory changed; empty if no run has a known peak on both sides."""
    both = cells.dropna(subset=["peak_before_bytes", "peak_after_bytes"])
    if both.empty:
        return ""
    changed = both[(both["peak_after_bytes"] - both["peak_before_bytes"]).abs() >= MIN_BYTES]
    if changed.empty:
        return f"Peak memory of tensors did not change by a MiB or more in any of {counted(len(both), 'run')}."
    sentence = f"Peak memory of tensors changed by a MiB or more in {of_all(len(changed), len(both), 'run')}."
    table = lines_table(changed, LEADING_KEYS, ("before, GiB", "after, GiB", "ratio"), _peak_cells)
    return f"{sentence}\n\n{pipe_table(table)}"


def _peak_cells(row: dict) -> tuple[str, str, str]:
    before, after = (row[f"peak_{side}_bytes"] for side in ("before", "after"))
    return significant(before / GIBIBYTE), significant(after / GIBIBYTE), significant(after / before, 4)


def energy_section(energies: pd.DataFrame) -> str:
    """The energy of a step on both sides; empty if no run has it on both."""
    if energies.empty:
        return ""
    return pipe_table(rows_table(energies, LEADING_KEYS, ENERGY_COLUMNS))


ENERGY_COLUMNS = (
    (
        "before, J per step",
        lambda row: with_spread(row["before_joules_per_step"], row["before_joules_per_step_std"]),
    ),
    ("after, J per step", lambda row: with_spread(row["joules_per_step"], row["joules_per_step_std"])),
    ("ratio", lambda row: ratio(row["ratio"], row["ratio_std"])),
)


def _changes(cells: pd.DataFrame, changes: pd.DataFrame) -> Iterator[str]:
    """The paragraphs of the section on changes in the captures."""
    if changes.empty:
        yield "No run with captures on both sides changed. Runs without captures on both sides are not compared here."
        return
    number_in_level = changes.groupby(["run", "level"]).cumcount()  # the largest changes come first
    shown = changes[(changes["level"] != "kernel") | (number_in_level < MAX_KERNELS)]
    short = short_names(shown.loc[shown["level"] == "kernel", "name"].unique())
    runs = cells.drop_duplicates("run").set_index("run")
    for run, run_changes in shown.groupby("run", sort=False):
        yield f"### {run_in_words(runs.loc[run, list(KEYS)].to_dict())}"
        rows = tuple(_change_row(row, short) for row in run_changes.to_dict("records"))
        headings = ("level", "name", "change", "launches", "ms", "difference, ms")
        yield pipe_table(MarkdownTable(headings, rows, first_right=3))
    if lines := [f"- {code(label)}: {code(name)}" for name, label in short.items() if label != name]:
        yield "Full names:"
        yield "\n".join(lines)


def _change_row(row: dict, short: dict[str, str]) -> tuple[str, ...]:
    launches = f"{count(row['launches_before'])} → {count(row['launches_after'])}"
    ms = f"{significant(row['ms_before'])} → {significant(row['ms_after'])}"
    name = short[row["name"]] if row["level"] == "kernel" else row["name"]
    return row["level"], code(name, in_table=True), row["change"], launches, ms, significant(row["ms_more"])
