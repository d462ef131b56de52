"""What the document of (i) says: sentences and tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from kernel_tables import units
from kernel_tables.attribution.path_text import as_path, innermost, names_in
from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import ABSENT, count, interval, known, memory, percent, significant
from profile_grid.questions.i_memory.fitting import LARGEST_BATCH, LONGEST_CONTEXT
from profile_grid.questions.i_memory.table import COUNTED
from profile_grid.study.dimensions import BY_KEY, MODEL
from profile_grid.tables.apart import pivoted, shown_dimensions, split, unstacked
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import told_apart
from profile_grid.tables.names import FORWARD, OUTSIDE
from profile_grid.tables.wording import PASSES, capital, extremes, leaders, listed, run_in_words

MOST_NAMED = 3  # runs out of memory; the document's table has all
EXPECTED = (
    ("the peaks", "requested_peak_bytes", "estimated_peak_bytes"),
    ("the activations", "activation_bytes", "estimated_activation_bytes"),
)
NOT_RECORDED = "Not answered: no run whose allocations were to be recorded has a whole history."
MOST_FAILURES = 3  # whose allocations are shown; the table has all
LED_BY = ("model", "context_length", "mode")
COUNTED_AS = {
    "requested_peak_bytes": "requested",
    "allocated_peak_bytes": "allocated",
    "reserved_peak_bytes": "reserved",
    "driver_used_bytes": "driver",
    "estimated_peak_bytes": "by the shapes",
}


def sentences(measured: Measured) -> list[str]:
    """(i) By mode the fullest moment of a step; then the activations, the counters and what would fit."""
    peaks = measured.tables["memory_peak"]
    if peaks.empty:
        return _failures(measured) or [NOT_RECORDED]
    found = [_of_mode(rows, mode) for mode, rows in peaks.groupby("mode", sort=False)]
    found += [*_kept(measured), *_counted(measured), *_expected(measured), *_fitting(measured)]
    return [*found, *_bisected(measured), *_failures(measured)]


def _of_mode(rows: pd.DataFrame, mode: str) -> str:
    """How much a step of this mode needs, when, and what most of it is."""
    runs = rows.drop_duplicates("run")
    most = rows.sort_values("bytes", ascending=False, kind="stable").drop_duplicates("run")
    return (
        f"{capital(PASSES[mode])} needs {extremes(runs, 'peak_bytes', lambda row: memory(row['peak_bytes']))} at its"
        f" fullest moment, in {leaders([f'**{phase}**' for phase in runs['fullest_phase']])}; the most is for"
        f" {leaders([f'**{name}**' for name in most['category']])} ({interval(most['share'], percent)})."
    )


def _kept(measured: Measured) -> list[str]:
    """Which part of the model keeps the most for the backward pass."""
    parts = measured.tables["memory_parts"]
    if parts.empty:
        return []
    first = parts.sort_values("bytes", ascending=False, kind="stable").drop_duplicates("run")
    leading = leaders([f"**{escaped(part)}**" for part in first["part"]])
    total = parts.groupby("run", sort=False)["bytes"].sum()
    return [
        f"For the backward pass {interval(total, memory)} are kept; the part that keeps the most is {leading}"
        f" ({interval(first['share'], percent)})."
    ]


def _counted(measured: Measured) -> list[str]:
    """What the allocator gave out, held, and what the driver saw, over what was asked for."""
    room = measured.tables["memory_room"]
    asked = room["requested_peak_bytes"]
    if room["allocated_peak_bytes"].isna().all():
        return []
    given, held, used = (
        interval((room[name] / asked).astype("float64"), _times)
        for name in ("allocated_peak_bytes", "reserved_peak_bytes", "driver_used_bytes")
    )
    return [
        f"Of what was asked for at once, the allocator gave out {given} and held {held},"
        f" and {used} were in use on the GPU."
    ]


def _expected(measured: Measured) -> list[str]:
    """How near the estimates from the shapes are."""
    room, told = measured.tables["memory_room"], []
    for what, found, expected in EXPECTED:
        both = room[room[expected].notna() & room[found].notna()]
        if len(both):
            told.append(f"{interval((both[expected] / both[found]).astype('float64'), percent)} of {what}")
    return [f"What follows from the shapes is {listed(told)} that were found."] if told else []


def _fitting(measured: Measured) -> list[str]:
    """What would fit into the GPU, by the estimate."""
    room = measured.tables["memory_room"]
    trains = room[(room["mode"] != FORWARD) & room[LONGEST_CONTEXT].notna()]
    if trains.empty:
        return []
    longest = extremes(trains, LONGEST_CONTEXT, lambda row: f"{count(row[LONGEST_CONTEXT])} tokens")
    batch = extremes(trains, LARGEST_BATCH, lambda row: f"{count(row[LARGEST_BATCH])} sequences")
    return [f"By the shapes the longest context that trains on this GPU is {longest}; the largest batch {batch}."]


def _bisected(measured: Measured) -> list[str]:
    """What was measured to fit, beside what the shapes let expect."""
    rows = measured.tables["memory_fits"]
    both = rows[rows["predicted"].notna() & (rows["predicted"] > 0)]
    if both.empty:
        return []
    share = interval((both["largest"] / both["predicted"]).astype("float64"), percent)
    return [f"What was measured to fit, by bisection, is {share} of what follows from the shapes."]


def _failures(measured: Measured) -> list[str]:
    """Where memory ran out, what was asked for, and what was live then."""
    rows = measured.tables["memory_at_failure"]
    return [_failure(own) for _, own in list(rows.groupby("run", sort=False))[:MOST_NAMED]]


def _failure(own: pd.DataFrame) -> str:
    """The same of one run."""
    first, of_category = own.iloc[0], own.groupby("category", sort=False)["bytes"].sum()
    path = innermost(first["in_range"])
    where = f"**{escaped(first['in_phase'])}**" + (f" (**{escaped(path)}**)" if path else "")
    if first["in_phase"] == OUTSIDE:
        where = "the making of model and optimizer"
    return (
        f"Memory runs out in {where} of {run_in_words(first)}: {memory(first['requested_bytes'])} were asked for,"
        f" {memory(first['free_bytes'])} free; of the {memory(first['live_bytes'])} that were live"
        f" {percent(of_category.max() / first['live_bytes'])} are **{escaped(of_category.idxmax())}**."
    )


def _times(value: float) -> str:
    return f"× {significant(value)}"


def peak_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run: the fullest moment of a step, in which phase it is, and its categories."""
    rows = measured.tables["memory_peak"]
    names = [name for name, own in rows.groupby("category", sort=False) if own["bytes"].any()]
    wide = pivoted(rows, ["run"], "category", ["bytes"])["bytes"]

    def cells(row: dict) -> list[str]:
        return [row["fullest_phase"], size(row["peak_bytes"]), *(size(wide[name][row["run"]]) for name in names)]

    return _by_run(rows.drop_duplicates("run"), ("in", "peak", *names), cells, words=1)


def parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(i) What each part keeps for the backward pass and its share, one column per model, one table with a title for
    each combination of the other dimensions."""
    rows = told_apart(measured.tables["memory_parts"])
    return [(title, _parts_table(part)) for title, part in split(rows, (MODEL.key,))] if len(rows) else []


def _parts_table(rows: pd.DataFrame) -> MarkdownTable:
    wide = pivoted(rows, ["part"], MODEL.key, ["bytes", "share"])
    models = list(dict.fromkeys(rows[MODEL.key]))
    order = wide["share"].mean(axis=1).sort_values(ascending=False, kind="stable").index
    lines = tuple(
        (escaped(part), *(_size_and_share(wide["bytes"][model][part], wide["share"][model][part]) for model in models))
        for part in order
    )
    return MarkdownTable(("part", *(escaped(model) for model in models)), lines, first_right=1)


def counted_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run: the peak as each counts it, and as the shapes let expect it."""
    rows = measured.tables["memory_room"]
    names = [name for name in (*COUNTED, "estimated_peak_bytes") if rows[name].notna().any()]
    return _by_run(rows, [COUNTED_AS[name] for name in names], lambda row: [size(row[name]) for name in names])


def fitting_table(measured: Measured) -> MarkdownTable | None:
    """(i) One line per run: the longest context and the largest batch that fit by the shapes; None without a GPU."""
    rows = measured.tables["memory_room"]
    rows = rows[rows[LONGEST_CONTEXT].notna()]
    if rows.empty:
        return None
    return _by_run(
        rows, ("longest context", "largest batch"), lambda row: [count(row[LONGEST_CONTEXT]), count(row[LARGEST_BATCH])]
    )


def bisected_table(measured: Measured) -> MarkdownTable | None:
    """(i) One line per run and dimension: the largest value that was measured to fit, beside that by the shapes."""
    rows = measured.tables["memory_fits"]
    if rows.empty:
        return None

    def cells(row: dict) -> list[str]:
        figures = (count(row[name]) for name in ("largest", "fails_at", "predicted"))
        return [BY_KEY[row["fitted"]].heading, *figures, size(row["limit_bytes"]), count(row["tries"])]

    return _by_run(rows, ("largest", "measured", "fails at", "by the shapes", "memory", "tries"), cells, words=1)


def largest_table(measured: Measured) -> tuple[str, MarkdownTable] | None:
    """(i) The run that needs most, and the largest groups of its allocations at that moment; None without any."""
    rows, peaks = measured.tables["memory_groups"], measured.tables["memory_peak"]
    if rows.empty:
        return None
    name = peaks.sort_values("peak_bytes", ascending=False, kind="stable")["run"].iloc[0]
    return name, _groups_table(rows[rows["run"] == name])


def failures_table(measured: Measured) -> MarkdownTable | None:
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


def failures_largest(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(i) Of some runs out of memory the name, and the largest groups of allocations that were live then."""
    rows = measured.tables["memory_at_failure"]
    return [(name, _groups_table(own)) for name, own in list(rows.groupby("run", sort=False))[:MOST_FAILURES]]


def _groups_table(rows: pd.DataFrame) -> MarkdownTable:
    lines = [
        (
            escaped(row["category"]), _place(row["phase"], row["range"]),
            code(row["operator"], in_table=True) if row["operator"] else ABSENT,
            count(row["allocations"]), size(row["each_bytes"]), size(row["bytes"]),
        )
        for row in rows.to_dict("records")
    ]  # fmt: skip
    return MarkdownTable(("category", "made in", "by", "number", "each", "together"), tuple(lines), first_right=3)


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


def _by_run(rows: pd.DataFrame, headings: Sequence[str], cells, words: int = 0) -> MarkdownTable:
    """One line per row, led by the dimensions of its run; the first `words` cells are text."""
    shown = shown_dimensions(rows, LED_BY)
    lines = tuple((*leading_cells(row, shown), *cells(row)) for row in rows.to_dict("records"))
    return MarkdownTable((*headings_of(shown), *headings), lines, first_right=len(shown) + words)
