"""What the document of (i) says: sentences and tables."""

from collections.abc import Iterable

import pandas as pd

from kernel_tables import units
from kernel_tables.attribution.path_text import as_path, innermost, names_in
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, memory, percent, significant
from profile_grid.questions.i_memory.block_document import (
    MAKERS,
    block_table,
    dtypes_tables,
    maker_cells,
    of_a_block,
    operations_tables,
)
from profile_grid.questions.i_memory.table import LARGEST_BATCH, LONGEST_CONTEXT
from profile_grid.study.dimensions import BY_KEY, CHECKPOINT, MODEL
from profile_grid.tables import gains, model_parts, pivoting
from profile_grid.tables.cells import Part, lines_table, parts_table, rows_table
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, OUTSIDE
from profile_grid.tables.wording import (
    PASSES,
    Claim,
    capital,
    config_in_words,
    leaders,
    listed,
    named_keys,
    run_in_words,
)

EXPECTED = (
    ("of the requested peaks", "requested_peak_bytes", "estimated_peak_bytes"),
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
        return _failed(failures) or [NOT_RECORDED]
    lead = [_fullest(peaks, failures)]
    fits = _bisected(measured) or _predicted(measured)
    return [*lead, *_modes(peaks), *_kept(measured), *fits, *_failed(failures), *_counted(measured)]


def _fullest(peaks: pd.DataFrame, failures: pd.DataFrame) -> Claim:
    """The highest peak, the largest category in it, and a run that does not fit."""
    peak_row = peaks[peaks["run"] == peaks.loc[peaks["peak_bytes"].idxmax(), "run"]].nlargest(1, "bytes").iloc[0]
    failure = ""
    if len(failures):
        first, number = failures.iloc[0], failures["run"].nunique()
        step = "that" if first["mode"] == peak_row["mode"] else PASSES[first["mode"]]
        failure = f"; {number} runs do not fit" if number > 1 else f"; {step} of {config_in_words(first)} does not fit"
    return Claim(
        "{step} of {place} needs {peak} at its peak, {share} of it {category}{lacking}.", "counted",
        step=capital(PASSES[peak_row["mode"]]),
        place=config_in_words(peak_row), peak=memory(peak_row["peak_bytes"]), share=percent(peak_row["share"]),
        category=peak_row["category"], lacking=failure,
    )  # fmt: skip


def _modes(peaks: pd.DataFrame) -> list[Claim]:
    """The peaks by mode, and their phases."""
    texts = []
    for mode, rows in peaks.groupby("mode", sort=False):
        runs = rows.drop_duplicates("run")
        phases = f" (phase: {leaders(list(runs['fullest_phase']))})" if mode != FORWARD else ""
        texts.append(f"{interval(runs['peak_bytes'], memory)} in {PASSES[mode]}{phases}")
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
            "The forward pass keeps {total} for the backward pass; the largest part of it ({share}) is {parts}."
            "{block}",
            "counted", total=interval(total, memory), parts=leaders([escaped(part) for part in first["part"]]),
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
    text = "For each requested byte, {gave} were allocated and {reserved} reserved; the driver showed {showed} in use."
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
    if len(trains) == 1:
        longest, batch = (count(trains[name].iloc[0]) for name in (LONGEST_CONTEXT, LARGEST_BATCH))
        fits = f"; the longest context that trains is predicted as {longest}, the largest batch as {batch}"
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
    """Where the first run ran out of memory, and what was live then; the document's table has all runs."""
    if failures.empty:
        return []
    first, number = failures.iloc[0], failures["run"].nunique()
    of_category = failures[failures["run"] == first["run"]].groupby("category", sort=False)["bytes"].sum()
    path = innermost(first["in_range"])
    phase = escaped(first["in_phase"]) + (f" ({escaped(path)})" if path else "")
    if first["in_phase"] == OUTSIDE:
        phase = "the setup of model and optimizer"
    return [
        Claim(
            "{run}, runs out of memory in {at} with {live} in use, {share} of it {category}{others}.",
            run=run_in_words(first, named_keys(failures)), at=phase, live=memory(first["live_bytes"]),
            share=percent(of_category.max() / first["live_bytes"]), category=escaped(of_category.idxmax()),
            others=f"; {number} runs do not fit" if number > 1 else "",
        )
    ]  # fmt: skip


def tables(measured: Measured) -> list[Part]:
    """(i) Peaks, what parts and blocks keep, the largest allocations, what fits, types, and where memory ran out."""
    peaks, failures, room = (measured.tables[f"memory_{name}"] for name in ("peak", "at_failure", "room"))
    parts = pivoting.split(model_parts.rows_in_parts(measured.tables["memory_parts"]), (MODEL.key,))
    of_parts = "Memory that each part of the model keeps for the backward pass, in brackets its share"
    counted = [name for name in COUNTED_AS if room[name].notna().any()]
    columns = [(COUNTED_AS[name], lambda row, name=name: size(row[name])) for name in counted]
    fitting = room[room[LONGEST_CONTEXT].notna()]
    return [
        *(["No run has figures."] if peaks.empty and failures.empty else []),
        ("The peak of a step, its phase, and memory by category at the peak", _peak_table(peaks)),
        *(
            (of_parts + (f", {title}" if title else ""), parts_table(rows, "share", _size_and_share))
            for title, rows in parts
        ),
        ("One block of the model, and an activation of the residual stream, as recorded and as predicted",
         block_table(measured)),
        *(
            (f"What one block keeps for the backward pass, by operation ({run})", table)
            for run, table in operations_tables(measured)
        ),
        *(
            (f"The largest groups of allocations at the peak ({run})", table)
            for run, table in _largest_tables(measured)
        ),
        ("Peak memory as requested, allocated and reserved, what the driver shows after the last step, and what the"
         " shapes predict",
         rows_table(room, gains.LEADING_KEYS, columns)),
        ("What fits, predicted from the shapes, with all other settings as in the run",
         rows_table(fitting, gains.LEADING_KEYS, FITTING)),
        *(
            (f"Types of parameters, outputs and gradients in the first step ({run})", table)
            for run, table in dtypes_tables(measured)
        ),
        *(f"Not recorded: {escaped(text)}." for text in dict.fromkeys(room["not_seen"].dropna())),
        ("What fits, measured by bisection, with all other settings as in the run",
         _bisected_table(measured.tables["memory_fits"])),
        ("Where memory ran out, and memory by category at that moment", _failures_table(failures)),
        *(
            (
                f"The largest groups of allocations when memory ran out ({run_in_words(rows.iloc[0])})",
                _groups_table(rows),
            )
            for _, rows in [*failures.groupby("run", sort=False)][:MAX_FAILURES]
        ),
    ]  # fmt: skip


FITTING = (
    ("longest context", lambda row: count(row[LONGEST_CONTEXT])),
    ("largest batch", lambda row: count(row[LARGEST_BATCH])),
)


def _largest_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(run, table) of the run with the highest peak: the largest groups of its allocations at the peak."""
    rows, peaks = measured.tables["memory_groups"], measured.tables["memory_peak"]
    names = peaks.sort_values("peak_bytes", ascending=False, kind="stable")["run"][:1]
    of_runs = [rows[rows["run"] == name] for name in names if len(rows)]
    return [(run_in_words(run_rows.iloc[0]), _groups_table(run_rows)) for run_rows in of_runs]


def _peak_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per run: the phase of its peak, the peak, and its categories."""
    names = [name for name, category_rows in rows.groupby("category", sort=False) if category_rows["bytes"].any()]
    wide = pivoting.pivoted(rows, ["run"], "category", ["bytes"])["bytes"]

    def cells(row: dict) -> list[str]:
        return [row["fullest_phase"], size(row["peak_bytes"]), *(size(wide[name][row["run"]]) for name in names)]

    return lines_table(rows.drop_duplicates("run"), gains.LEADING_KEYS, ("phase", "peak", *names), cells, words=1)


def _bisected_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per run and dimension: the largest value that was measured to fit, and the prediction from the
    shapes."""

    def cells(row: dict) -> list[str]:
        figures = (count(row[name]) for name in ("largest", "fails_at", "predicted"))
        return [BY_KEY[row["fitted"]].heading, *figures, size(row["limit_bytes"]), count(row["tries"])]

    headings = ("dimension", "fits", "does not fit", "predicted", "memory", "tries")
    return lines_table(rows, gains.LEADING_KEYS, headings, cells, words=1)


def _failures_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per run out of memory: where, requested and free bytes, and live bytes by category."""
    sums = pivoting.unstacked(rows.groupby(["run", "category"], sort=False)["bytes"].sum(), "category")

    def cells(row: dict) -> list[str]:
        sizes = (size(row[name]) for name in ("requested_bytes", "free_bytes", "live_bytes"))
        return [_place(row["in_phase"], row["in_range"]), *sizes, *(size(bytes_) for bytes_ in sums.loc[row["run"]])]

    headings = ("range", "requested", "free", "in use", *sums.columns)
    return lines_table(rows.drop_duplicates("run"), gains.LEADING_KEYS, headings, cells, words=1)


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


def size(bytes_: float) -> str:
    """A size with three significant digits and its unit."""
    if not known(bytes_):
        return ABSENT
    return units.size(bytes_) if bytes_ else "0"


def nested(machines: Iterable[Measured]) -> list[str]:
    """What the names of checkpoints within checkpoints mean: "checkpoints of 8-2 blocks: ..."."""
    runs = pd.concat([measured.tables["memory_peak"] for measured in machines])
    texts = []
    for value in runs[CHECKPOINT.key].drop_duplicates().astype(str):
        if len(levels := value.split("-")) > 1:
            inner = " and of these every ".join(levels[1:])
            texts.append(
                f"checkpoints of {value} blocks: {levels[0]} blocks share a checkpoint; while they are recomputed,"
                f" every {inner} of them share another."
            )
    return texts


def _size_and_share(row: dict) -> str:
    return f"{size(row['bytes'])} ({percent(row['share'])})"
