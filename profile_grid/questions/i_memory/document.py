"""What the document of (i) says: sentences and tables."""

import pandas as pd

from kernel_tables import units
from kernel_tables.attribution.path_text import as_path, innermost, names_in
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, memory, percent, significant
from profile_grid.questions.i_memory.block_document import MAKERS, maker_cells, of_a_block
from profile_grid.questions.i_memory.block_document import block_table as block_table
from profile_grid.questions.i_memory.block_document import dtypes_tables as dtypes_tables
from profile_grid.questions.i_memory.block_document import operations_tables as operations_tables
from profile_grid.questions.i_memory.table import COUNTED, LARGEST_BATCH, LONGEST_CONTEXT
from profile_grid.study.dimensions import BY_KEY, MODEL
from profile_grid.tables.cells import lines_table, parts_table, rows_table
from profile_grid.tables.claims import Claim
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import if_parts_differ
from profile_grid.tables.names import FORWARD, OUTSIDE
from profile_grid.tables.pivoting import pivoted, split, unstacked
from profile_grid.tables.ratio_tables import LEADING_KEYS
from profile_grid.tables.wording import PASSES, capital, leaders, listed, run_in_words, where

EXPECTED = (
    ("of the peaks", "requested_peak_bytes", "estimated_peak_bytes"),
    ("of the activations", "activation_bytes", "estimated_activation_bytes"),
)
NOT_RECORDED = Claim("Not answered: no run whose allocations were to be recorded has a complete history.", "missing")
MAX_FAILURES = 3  # whose allocations are shown; the table has all
COUNTED_AS = {
    "requested_peak_bytes": "requested",
    "allocated_peak_bytes": "allocated",
    "reserved_peak_bytes": "reserved",
    "driver_used_bytes": "driver",
    "estimated_peak_bytes": "predicted",
}


def sentences(measured: Measured) -> list[str]:
    """(i) The run with the highest peak; then by mode, what is kept, what fits, and the allocator."""
    peaks, failures = measured.tables["memory_peak"], measured.tables["memory_at_failure"]
    if peaks.empty:
        return [_failure(run_rows) for _, run_rows in failures.groupby("run", sort=False)][:1] or [NOT_RECORDED]
    lead = [_fullest(peaks, failures)]
    fits = _bisected(measured) or _predicted(measured)
    return [*lead, *_modes(peaks), *_kept(measured), *fits, *_failed(failures), *_counted(measured)]


def _fullest(peaks: pd.DataFrame, failures: pd.DataFrame) -> Claim:
    """The highest peak, the largest category in it, and a run that does not fit."""
    peak_row = peaks[peaks["run"] == peaks.loc[peaks["peak_bytes"].idxmax(), "run"]].nlargest(1, "bytes").iloc[0]
    failure = ""
    if len(failures):
        first = failures.iloc[0]
        step = "that" if first["mode"] == peak_row["mode"] else PASSES[first["mode"]]
        failure = f"; {step} of {where(first)} does not fit"
    return Claim(
        "{step} of {place} needs {peak} at its peak, {share} of it {category}{lacking}.", "counted",
        step=capital(PASSES[peak_row["mode"]]),
        place=where(peak_row), peak=memory(peak_row["peak_bytes"]), share=percent(peak_row["share"]),
        category=peak_row["category"], lacking=failure,
    )  # fmt: skip


def _modes(peaks: pd.DataFrame) -> list[Claim]:
    """The peaks by mode, and their phases."""
    texts = []
    for mode, rows in peaks.groupby("mode", sort=False):
        runs = rows.drop_duplicates("run")
        texts.append(
            f"{interval(runs['peak_bytes'], memory)} in {PASSES[mode]} (phase: {leaders(list(runs['fullest_phase']))})"
        )
    return [Claim("Peaks: {texts}.", "counted", texts="; ".join(texts))]


def _kept(measured: Measured) -> list[Claim]:
    """The part of the model that keeps the most for the backward pass."""
    parts = measured.tables["memory_parts"]
    if parts.empty:
        return []
    first = parts.sort_values("bytes", ascending=False, kind="stable").drop_duplicates("run")
    total = parts.groupby("run", sort=False)["bytes"].sum()
    return [
        Claim(
            "For the backward pass, {total} are kept, most of it by {parts} ({share}){block}.", "counted",
            total=interval(total, memory), parts=leaders([escaped(part) for part in first["part"]]),
            share=interval(first["share"], percent), block=of_a_block(measured),
        )
    ]  # fmt: skip


def _counted(measured: Measured) -> list[Claim]:
    """Bytes that the allocator gave and reserved, and that the GPU showed in use, per requested byte."""
    room = measured.tables["memory_room"]
    if room["allocated_peak_bytes"].isna().all():
        return []
    allocated, reserved, used = (
        interval((room[name] / room["requested_peak_bytes"]).astype("float64"), significant)
        for name in ("allocated_peak_bytes", "reserved_peak_bytes", "driver_used_bytes")
    )
    text = "For each requested byte, the allocator gave {gave} and reserved {reserved}; the GPU showed {showed} in use."
    return [Claim(text, gave=allocated, reserved=reserved, showed=used)]


def _predicted(measured: Measured) -> list[Claim]:
    """What would fit into the GPU by the shapes, and the ratio of estimates to recorded bytes."""
    room, ratios = measured.tables["memory_room"], []
    for noun, recorded, expected in EXPECTED:
        both = room[room[expected].notna() & room[recorded].notna()]
        if len(both):
            ratios.append(f"{interval((both[expected] / both[recorded]).astype('float64'), percent)} {noun}")
    trains = room[(room["mode"] != FORWARD) & room[LONGEST_CONTEXT].notna()]
    fits = ""
    if len(trains):
        longest, batch = (interval(trains[name], count) for name in (LONGEST_CONTEXT, LARGEST_BATCH))
        fits = f"; they predict that contexts up to {longest}, or batches up to {batch}, can be trained"
    text = "Predictions from the shapes are {near}{fits}."
    return [Claim(text, "predicted", near=listed(ratios), fits=fits)] if ratios else []


def _bisected(measured: Measured) -> list[Claim]:
    """The largest measured size that fits, the smallest that does not, and the prediction from the shapes."""
    texts = [
        f"{BY_KEY[row['fitted']].heading} {count(row['largest'])} fits and {count(row['fails_at'])} does not"
        f" ({count(row['predicted'])} predicted)"
        for row in measured.tables["memory_fits"].to_dict("records")[:MAX_FAILURES]
    ]
    return [Claim("Measured by bisection: {texts}.", "measured", texts="; ".join(texts))] if texts else []


def _failed(failures: pd.DataFrame) -> list[Claim]:
    """The first run out of memory; the document's table has all."""
    return [_failure(run_rows) for _, run_rows in failures.groupby("run", sort=False)][:1]


def _failure(live: pd.DataFrame) -> Claim:
    """Where one run ran out of memory, the requested bytes, and what was live then."""
    first, of_category = live.iloc[0], live.groupby("category", sort=False)["bytes"].sum()
    path = innermost(first["in_range"])
    phase = escaped(first["in_phase"]) + (f" ({escaped(path)})" if path else "")
    if first["in_phase"] == OUTSIDE:
        phase = "the setup of model and optimizer"
    return Claim(
        "{run}, runs out of memory in {at}: {asked} requested, {free} free; {share} of the {live} in use are"
        " {category}.",
        run=run_in_words(first), at=phase, asked=memory(first["requested_bytes"]),
        free=memory(first["free_bytes"]), live=memory(first["live_bytes"]),
        share=percent(of_category.max() / first["live_bytes"]), category=escaped(of_category.idxmax()),
    )  # fmt: skip


def peak_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run: the phase of its peak, the peak, and its categories."""
    rows = measured.tables["memory_peak"]
    names = [name for name, category_rows in rows.groupby("category", sort=False) if category_rows["bytes"].any()]
    wide = pivoted(rows, ["run"], "category", ["bytes"])["bytes"]

    def cells(row: dict) -> list[str]:
        return [row["fullest_phase"], size(row["peak_bytes"]), *(size(wide[name][row["run"]]) for name in names)]

    return lines_table(rows.drop_duplicates("run"), LEADING_KEYS, ("phase", "peak", *names), cells, words=1)


def parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(i) Bytes and share that each part keeps for the backward pass, a column per model; one table with its title for
    each combination of the other dimensions."""
    rows = split(if_parts_differ(measured.tables["memory_parts"]), (MODEL.key,))
    return [(title, parts_table(some, "share", _size_and_share)) for title, some in rows]


def counted_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run: the peak as the allocator, the driver and the shapes have it."""
    rows = measured.tables["memory_room"]
    names = [name for name in (*COUNTED, "estimated_peak_bytes") if rows[name].notna().any()]
    return lines_table(
        rows, LEADING_KEYS, [COUNTED_AS[name] for name in names], lambda row: [size(row[name]) for name in names]
    )


def fitting_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run on a GPU: the longest context and the largest batch that fit by the shapes."""
    rows = measured.tables["memory_room"]
    rows = rows[rows[LONGEST_CONTEXT].notna()]
    columns = (
        ("longest context", lambda row: count(row[LONGEST_CONTEXT])),
        ("largest batch", lambda row: count(row[LARGEST_BATCH])),
    )
    return rows_table(rows, LEADING_KEYS, columns)


def bisected_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run and dimension: the largest value that was measured to fit, and the prediction from the
    shapes."""
    rows = measured.tables["memory_fits"]

    def cells(row: dict) -> list[str]:
        figures = (count(row[name]) for name in ("largest", "fails_at", "predicted"))
        return [BY_KEY[row["fitted"]].heading, *figures, size(row["limit_bytes"]), count(row["tries"])]

    headings = ("dimension", "fits", "does not fit", "predicted", "memory", "tries")
    return lines_table(rows, LEADING_KEYS, headings, cells, words=1)


def largest_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(i) (run, table) of the run with the highest peak: the largest groups of its allocations at the peak."""
    rows, peaks = measured.tables["memory_groups"], measured.tables["memory_peak"]
    names = peaks.sort_values("peak_bytes", ascending=False, kind="stable")["run"][:1]
    of_runs = [rows[rows["run"] == name] for name in names if len(rows)]
    return [(run_in_words(run_rows.iloc[0]), _groups_table(run_rows)) for run_rows in of_runs]


def failures_table(measured: Measured) -> MarkdownTable:
    """(i) One line per run out of memory: where, requested and free bytes, and live bytes by category."""
    rows = measured.tables["memory_at_failure"]
    sums = unstacked(rows.groupby(["run", "category"], sort=False)["bytes"].sum(), "category")

    def cells(row: dict) -> list[str]:
        sizes = (size(row[name]) for name in ("requested_bytes", "free_bytes", "live_bytes"))
        return [_place(row["in_phase"], row["in_range"]), *sizes, *(size(bytes_) for bytes_ in sums.loc[row["run"]])]

    headings = ("range", "requested", "free", "in use", *sums.columns)
    return lines_table(rows.drop_duplicates("run"), LEADING_KEYS, headings, cells, words=1)


def failures_largest(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(i) (run, table) of some runs out of memory: the largest groups of allocations that were live then."""
    rows = measured.tables["memory_at_failure"]
    of_runs = [run_rows for _, run_rows in rows.groupby("run", sort=False)][:MAX_FAILURES]
    return [(run_in_words(run_rows.iloc[0]), _groups_table(run_rows)) for run_rows in of_runs]


def _groups_table(rows: pd.DataFrame) -> MarkdownTable:
    known_makers = [key for key in MAKERS if (rows[key].fillna("") != "").any()]  # older recordings of GPUs have none
    lines = [
        (
            escaped(row["category"]), _place(row["phase"], row["range"]), *maker_cells(row, known_makers),
            count(row["allocations"]), size(row["each_bytes"]), size(row["bytes"]),
        )
        for row in rows.to_dict("records")
    ]  # fmt: skip
    headings = ("category", "allocated in", *known_makers, "number", "size of each", "total")
    return MarkdownTable(headings, tuple(lines), first_right=2 + len(known_makers))


def _place(phase: str, path: str) -> str:
    return escaped(as_path([*filter(None, [phase]), *names_in(path)]))


def not_seen(measured: Measured) -> list[str]:
    """(i) What the recordings of these runs do not cover, each once."""
    texts = measured.tables["memory_room"]["not_seen"].dropna()
    return list(dict.fromkeys(texts))


def size(bytes_: float) -> str:
    """A size with three significant digits and its unit."""
    if not known(bytes_):
        return ABSENT
    return units.size(bytes_) if bytes_ else "0"


def _size_and_share(row: dict) -> str:
    return f"{size(row['bytes'])} ({percent(row['share'])})"
