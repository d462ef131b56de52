"""The tables that the document of (i) shows."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from kernel_tables.attribution.path_text import as_path, names_in
from kernel_tables.markdown import Table, code, escaped
from kernel_tables.terminal import units
from profile_grid.quantities import ABSENT, count, known, percent
from profile_grid.questions.i_memory.fitting import LARGEST_BATCH, LONGEST_CONTEXT
from profile_grid.questions.i_memory.table import COUNTED
from profile_grid.study.dimensions import BY_KEY, MODEL
from profile_grid.tables.apart import pivoted, shown_dimensions, split, unstacked
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import told_apart

MOST_FAILURES = 3  # whose allocations are shown; the table has all
LED_BY = ("model", "context_length", "mode")
COUNTED_AS = {
    "requested_peak_bytes": "requested",
    "allocated_peak_bytes": "allocated",
    "reserved_peak_bytes": "reserved",
    "driver_used_bytes": "driver",
    "estimated_peak_bytes": "by the shapes",
}


def peak_table(measured: Measured) -> Table:
    """(i) One line per run: the fullest moment of a step, in which phase it is, and its categories."""
    rows = measured.tables["memory_peak"]
    names = [name for name, own in rows.groupby("category", sort=False) if own["bytes"].any()]
    wide = pivoted(rows, ["run"], "category", ["bytes"])["bytes"]

    def cells(row: dict) -> list[str]:
        return [row["fullest_phase"], size(row["peak_bytes"]), *(size(wide[name][row["run"]]) for name in names)]

    return _by_run(rows.drop_duplicates("run"), ("in", "peak", *names), cells, words=1)


def parts_tables(measured: Measured) -> list[tuple[str, Table]]:
    """(i) What each part keeps for the backward pass and its share, one column per model, one table with a title for
    each combination of the other dimensions."""
    rows = told_apart(measured.tables["memory_parts"])
    return [(title, _parts_table(part)) for title, part in split(rows, (MODEL.key,))] if len(rows) else []


def _parts_table(rows: pd.DataFrame) -> Table:
    wide = pivoted(rows, ["part"], MODEL.key, ["bytes", "share"])
    models = list(dict.fromkeys(rows[MODEL.key]))
    order = wide["share"].mean(axis=1).sort_values(ascending=False, kind="stable").index
    lines = tuple(
        (escaped(part), *(_size_and_share(wide["bytes"][model][part], wide["share"][model][part]) for model in models))
        for part in order
    )
    return Table(("part", *(escaped(model) for model in models)), lines, first_right=1)


def counted_table(measured: Measured) -> Table:
    """(i) One line per run: the peak as each counts it, and as the shapes let expect it."""
    rows = measured.tables["memory_room"]
    names = [name for name in (*COUNTED, "estimated_peak_bytes") if rows[name].notna().any()]
    return _by_run(rows, [COUNTED_AS[name] for name in names], lambda row: [size(row[name]) for name in names])


def fitting_table(measured: Measured) -> Table | None:
    """(i) One line per run: the longest context and the largest batch that fit by the shapes; None without a GPU."""
    rows = measured.tables["memory_room"]
    rows = rows[rows[LONGEST_CONTEXT].notna()]
    if rows.empty:
        return None
    return _by_run(
        rows, ("longest context", "largest batch"), lambda row: [count(row[LONGEST_CONTEXT]), count(row[LARGEST_BATCH])]
    )


def bisected_table(measured: Measured) -> Table | None:
    """(i) One line per run and dimension: the largest value that was measured to fit, beside that by the shapes."""
    rows = measured.tables["memory_fits"]
    if rows.empty:
        return None

    def cells(row: dict) -> list[str]:
        figures = (count(row[name]) for name in ("largest", "fails_at", "predicted"))
        return [BY_KEY[row["fitted"]].heading, *figures, size(row["limit_bytes"]), count(row["tries"])]

    return _by_run(rows, ("largest", "measured", "fails at", "by the shapes", "memory", "tries"), cells, words=1)


def largest_table(measured: Measured) -> tuple[str, Table] | None:
    """(i) The run that needs most, and the largest groups of its allocations at that moment; None without any."""
    rows, peaks = measured.tables["memory_groups"], measured.tables["memory_peak"]
    if rows.empty:
        return None
    name = peaks.sort_values("peak_bytes", ascending=False, kind="stable")["run"].iloc[0]
    return name, _groups_table(rows[rows["run"] == name])


def failures_table(measured: Measured) -> Table | None:
    """(i) One line per run out of memory: where, what was asked for and free, and what was live then by category; None
    where none recorded that."""
    rows = measured.tables["memory_at_failure"]
    if rows.empty:
        return None
    sums = unstacked(rows.groupby(["run", "category"], sort=False)["bytes"].sum(), "category")

    def cells(row: dict) -> list[str]:
        asked = (size(row[name]) for name in ("requested_bytes", "free_bytes", "live_bytes"))
        return [_place(row["in_phase"], row["in_range"]), *asked, *(size(one) for one in sums.loc[row["run"]])]

    headings = ("in", "asked for", "free", "live", *sums.columns)
    return _by_run(rows.drop_duplicates("run"), headings, cells, words=1)


def failures_largest(measured: Measured) -> list[tuple[str, Table]]:
    """(i) Of some runs out of memory the name, and the largest groups of allocations that were live then."""
    rows = measured.tables["memory_at_failure"]
    return [(name, _groups_table(own)) for name, own in list(rows.groupby("run", sort=False))[:MOST_FAILURES]]


def _groups_table(rows: pd.DataFrame) -> Table:
    lines = [
        (
            escaped(row["category"]), _place(row["phase"], row["range"]),
            code(row["operator"], in_table=True) if row["operator"] else ABSENT,
            count(row["allocations"]), size(row["each_bytes"]), size(row["bytes"]),
        )
        for row in rows.to_dict("records")
    ]  # fmt: skip
    return Table(("category", "made in", "by", "number", "each", "together"), tuple(lines), first_right=3)


def _place(phase: str, path: str) -> str:
    return escaped(as_path([*filter(None, [phase]), *names_in(path)]))


def not_seen(measured: Measured) -> list[str]:
    """(i) What the recordings of these runs cannot tell, each once."""
    told = measured.tables["memory_room"]["not_seen"].dropna()
    return list(dict.fromkeys(line for text in told for line in text.split("; ")))


def size(bytes_: float) -> str:
    """A size with three significant digits and its unit."""
    if not known(bytes_):
        return ABSENT
    return units.size(bytes_) if bytes_ else "0"


def _size_and_share(bytes_: float, share: float) -> str:
    return f"{size(bytes_)} ({percent(share)})" if known(bytes_) else ABSENT


def _by_run(rows: pd.DataFrame, headings: Sequence[str], cells, words: int = 0) -> Table:
    """One line per row, led by the dimensions of its run; the first `words` cells are text."""
    shown = shown_dimensions(rows, LED_BY)
    lines = tuple((*leading_cells(row, shown), *cells(row)) for row in rows.to_dict("records"))
    return Table((*headings_of(shown), *headings), lines, first_right=len(shown) + words)
