"""The sections of a comparison, as Markdown from its tables."""

from collections.abc import Iterator

import pandas as pd

from kernel_tables.kernel_names.short import short_names
from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.comparing.cells import NOT_COMPARABLE
from profile_grid.quantities import ABSENT, GIBIBYTE, count, known, ratio, significant, with_spread
from profile_grid.study.dimensions import KEYS
from profile_grid.tables.cells import lines_table
from profile_grid.tables.wording import run_in_words

LEADING_KEYS = ("model", "context_length", "mode")
MAX_KERNELS = 5  # of one run
MIN_BYTES = 2**20  # of a reported change of peak memory


def facts_section(facts: pd.DataFrame) -> str:
    """The facts of the two measurements that differ."""
    if facts.empty:
        return "Nothing that was recorded: machine, versions, source and configuration are the same."
    rows = tuple(tuple(escaped(text) for text in row) for row in facts.itertuples(index=False))
    return pipe_table(MarkdownTable(("fact", "before", "after"), rows, first_right=99))


def cells_section(cells: pd.DataFrame) -> str:
    """Every cell with its times, the ratio, and the verdict."""
    headings = ("before, ms", "after, ms", "ratio", "interval", "p, adjusted", "processes", "verdict")
    return pipe_table(lines_table(cells, LEADING_KEYS, headings, _cell))


def _cell(row: dict) -> tuple[str, ...]:
    low, high = (significant(row[f"ratio_{end}"], 4) for end in ("low", "high"))
    verdict = row["verdict"] + (f": {row['reason']}" if row["verdict"] == NOT_COMPARABLE else "")
    return (
        significant(row["before_ms"], 4), significant(row["after_ms"], 4),
        significant(row["ratio"], 4), f"{low} to {high}" if known(row["ratio_low"]) else ABSENT,
        f"{row['p_adjusted']:.2g}" if known(row["p_adjusted"]) else ABSENT,
        " / ".join(count(row[f"processes_{side}"]) for side in ("before", "after")), escaped(verdict),
    )  # fmt: skip


def memory_section(cells: pd.DataFrame) -> str:
    """The cells whose peak memory changed; empty if no peak is known on both sides."""
    peaks = cells[["peak_before_bytes", "peak_after_bytes"]].astype("float64")
    both = cells[peaks.notna().all(axis=1)]
    if both.empty:
        return ""
    changed = both[(both["peak_after_bytes"] - both["peak_before_bytes"]).abs() >= MIN_BYTES]
    sentence = f"The peak of the tensors' memory changed by a MiB or more in {len(changed)} of {len(both)} cells."
    if changed.empty:
        return sentence
    table = lines_table(changed, LEADING_KEYS, ("before, GiB", "after, GiB", "ratio"), _peaks)
    return f"{sentence}\n\n{pipe_table(table)}"


def _peaks(row: dict) -> tuple[str, str, str]:
    before, after = (row[f"peak_{side}_bytes"] for side in ("before", "after"))
    return significant(before / GIBIBYTE), significant(after / GIBIBYTE), significant(after / before, 4)


def energy_section(energies: pd.DataFrame) -> str:
    """The energy of a step on both sides; empty unless both counted it."""
    if energies.empty:
        return ""
    headings = ("before, J per step", "after, J per step", "ratio")
    return pipe_table(lines_table(energies, LEADING_KEYS, headings, _energies))


def _energies(row: dict) -> list[str]:
    sides = [with_spread(*(row[f"{side}joules_per_step{end}"] for end in ("", "_std"))) for side in ("before_", "")]
    return [*sides, ratio(row["ratio"], row["ratio_std"])]


def changes_section(cells: pd.DataFrame, changes: pd.DataFrame) -> str:
    """The changes in the captures of each run, and the full names of its kernels."""
    return "\n\n".join(_changes(cells, changes))


def _changes(cells: pd.DataFrame, changes: pd.DataFrame) -> Iterator[str]:
    if changes.empty:
        yield "Nothing, or no cell was captured on both sides."
        return
    listed = changes[(changes["level"] != "kernel") | (changes.groupby(["run", "level"]).cumcount() < MAX_KERNELS)]
    short = short_names(listed.loc[listed["level"] == "kernel", "name"].unique(), {})
    runs = cells.drop_duplicates("run").set_index("run", drop=False)
    for run, run_changes in listed.groupby("run", sort=False):
        yield f"### {run_in_words(runs.loc[run, ['run', *KEYS]].to_dict())}"
        rows = tuple(_change(row, short) for row in run_changes.to_dict("records"))
        yield pipe_table(MarkdownTable(("level", "name", "change", "launches", "ms", "more, ms"), rows, first_right=3))
    if longer := {label: name for name, label in short.items() if label != name}:
        yield "Full names:"
        yield "\n".join(f"- {code(label)}: {code(name)}" for label, name in longer.items())


def _change(row: dict, short: dict[str, str]) -> tuple[str, ...]:
    launches, ms = (tuple(row[f"{figure}_{side}"] for side in ("before", "after")) for figure in ("launches", "ms"))
    arrows = " → ".join(map(count, launches)), " → ".join(map(significant, ms))
    name = short.get(row["name"], row["name"]) if row["level"] == "kernel" else row["name"]
    return row["level"], code(name, in_table=True), row["change"], *arrows, significant(row["ms_more"])
