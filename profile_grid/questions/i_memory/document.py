"""What the document of (i) says: sentences and tables."""

from collections.abc import Iterable

import pandas as pd

from kernel_tables.attribution.path_text import as_path, innermost, names_in
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import count, interval, memory, percent, significant
from profile_grid.questions.i_memory import block_document
from profile_grid.questions.i_memory.block_document import CALLER_COLUMNS, caller_cells, size
from profile_grid.questions.i_memory.table import largest_category_of_highest_peak
from profile_grid.study.dimensions import CHECKPOINT, MODEL
from profile_grid.tables import gains, model_parts, pivoting
from profile_grid.tables.cells import Part, columns_with_values, parts_table, rows_table, table_per_run, titled
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, OUTSIDE
from profile_grid.tables.per_pass import largest_by_run
from profile_grid.tables.wording import (
    PASSES,
    Claim,
    capital,
    config_in_words,
    leaders,
    named_keys,
    of_all,
    run_in_words,
)

NO_ANSWER = Claim("Not answered: no run whose allocations were to be recorded has a complete history.", "missing")
MAX_FAILURES = 3  # failed runs whose allocations are shown; the tables have all
PEAK_HEADINGS = {
    "requested_peak_bytes": "requested",
    "allocated_peak_bytes": "allocated",
    "reserved_peak_bytes": "reserved",
    "driver_used_bytes": "driver",
}


def sentences(measured: Measured) -> list[Claim]:
    """(i) The highest peak; then peaks by mode, what is kept, where memory ran out, and what is reserved."""
    peaks, failures = measured.tables["memory_peak"], measured.tables["memory_at_failure"]
    if peaks.empty:
        return _failures(failures) or [NO_ANSWER]
    claims = [_highest_peak(peaks, failures), *_peaks_by_mode(peaks), *_kept_for_backward(measured)]
    return [*claims, *_failures(failures), *_allocator_ratios(measured)]


def _highest_peak(peaks: pd.DataFrame, failures: pd.DataFrame) -> Claim:
    """The highest peak, its largest category, and what does not fit: the run in words, or the number of runs."""
    peak_row, failure = largest_category_of_highest_peak(peaks), ""
    if len(failures):
        failure_row, failed_runs = failures.iloc[0], failures["run"].nunique()
        step = "that" if failure_row["mode"] == peak_row["mode"] else PASSES[failure_row["mode"]]  # "training step"
        recorded = of_all(failed_runs, peaks["run"].nunique() + failed_runs, "recorded run")
        subject = f"{recorded} do" if failed_runs > 1 else f"{step} of {config_in_words(failure_row)} does"
        failure = f"; {subject} not fit"
    return Claim(
        "{step} of {place} needs {peak} at its peak, {share} of it {category}{lacking}.", "counted",
        step=capital(PASSES[peak_row["mode"]]),
        place=config_in_words(peak_row), peak=memory(peak_row["peak_bytes"]), share=percent(peak_row["share"]),
        category=peak_row["category"], lacking=failure,
    )  # fmt: skip


def _peaks_by_mode(peaks: pd.DataFrame) -> list[Claim]:
    """By mode: the range of the peaks, and the phases in which they are. A forward pass is a single phase."""
    texts = []
    for mode, rows in peaks.groupby("mode", sort=False):
        runs = rows.drop_duplicates("run")
        phases = f" (phase: {leaders(list(runs['fullest_phase']))})" if mode != FORWARD else ""
        texts.append(f"{interval(runs['peak_bytes'], memory)} in {PASSES[mode]}{phases}")
    return [Claim("Peaks: {texts}.", "counted", texts="; ".join(texts))]


def _kept_for_backward(measured: Measured) -> list[Claim]:
    """What is kept for the backward pass, the part of the model that keeps the most, and what one block keeps."""
    parts = measured.tables["memory_parts"]
    if parts.empty:
        return []
    largest = largest_by_run(parts, "bytes")
    total = parts.groupby("run", sort=False)["bytes"].sum()
    block = block_document.block_sentence(measured)
    return [
        Claim(
            "The forward pass keeps {total} for the backward pass; the largest part of it ({share}) is {parts}."
            "{block}",
            "counted", total=interval(total, memory), parts=leaders([escaped(part) for part in largest["part"]]),
            share=interval(largest["share"], percent), block=f" {block}" if block else "",
        )
    ]  # fmt: skip


def _allocator_ratios(measured: Measured) -> list[Claim]:
    """Per requested byte: the bytes that the allocator gave out and reserved, and that the driver showed in use."""
    totals = measured.tables["memory_allocator"]
    if totals["allocated_peak_bytes"].isna().all():
        return []
    allocated, reserved, used = (
        interval((totals[name] / totals["requested_peak_bytes"]).astype("float64"), significant)
        for name in ("allocated_peak_bytes", "reserved_peak_bytes", "driver_used_bytes")
    )
    return [
        Claim(
            "The allocator gives out {gave} times the requested memory, and reserves {reserved} times as much; the"
            " driver shows {showed} times as much in use.",
            gave=allocated, reserved=reserved, showed=used,
        )
    ]  # fmt: skip


def _failures(failures: pd.DataFrame) -> list[Claim]:
    """Where the first run without enough memory failed, and what was live at that moment. The tables have all runs."""
    if failures.empty:
        return []
    failure_row = failures.iloc[0]
    sizes = failures[failures["run"] == failure_row["run"]].groupby("category", sort=False)["bytes"].sum()
    part = innermost(failure_row["in_range"])
    where = escaped(failure_row["in_phase"]) + (f" ({escaped(part)})" if part else "")
    if failure_row["in_phase"] == OUTSIDE:
        where = "the setup of model and optimizer"
    return [
        Claim(
            "{run}, runs out of memory in {at} with {live} in use, {share} of it {category}.",
            run=run_in_words(failure_row, named_keys(failures)), at=where, live=memory(failure_row["live_bytes"]),
            share=percent(sizes.max() / failure_row["live_bytes"]), category=escaped(sizes.idxmax()),
        )
    ]  # fmt: skip


def tables(measured: Measured) -> list[Part]:
    """(i) Peaks, what parts and blocks keep, the largest allocations, types, and where memory ran out."""
    peaks, failures, totals = (measured.tables[f"memory_{name}"] for name in ("peak", "at_failure", "allocator"))
    operations, groups = measured.tables["memory_operations"], measured.tables["memory_groups"]
    parts = pivoting.split(model_parts.rows_in_parts(measured.tables["memory_parts"]), (MODEL.key,))
    operations = _of_largest_run(operations, operations.groupby("run", sort=False)["bytes"].sum())
    groups = _of_largest_run(groups, peaks.set_index("run")["peak_bytes"])
    named = named_keys(totals)
    failure_rows = failures[failures["run"].isin(failures["run"].unique()[:MAX_FAILURES])]
    return [
        *(["No run has figures."] if peaks.empty and failures.empty else []),
        ("The peak of a step, its phase, and memory by category at the peak", _peak_table(peaks)),
        *titled("Memory that each part of the model keeps for the backward pass, in brackets its share",
                ((title, parts_table(rows, "share", _size_and_share)) for title, rows in parts)),
        ("One block of the model, and an activation of the residual stream",
         block_document.block_table(measured)),
        *table_per_run("What one block keeps for the backward pass, by operation", operations,
                       block_document.operations_table, named),
        *table_per_run("The largest groups of allocations at the peak", groups, _groups_table, named),
        ("Peak memory as requested, allocated and reserved, and what the driver shows after the last step",
         rows_table(totals, gains.LEADING_KEYS, columns_with_values(totals, PEAK_HEADINGS, size))),
        *table_per_run("Types of parameters, outputs and gradients in the first step",
                       block_document.run_per_precision(measured.tables["dtypes"]), block_document.dtypes_table, named),
        *(f"Not recorded: {escaped(text)}." for text in dict.fromkeys(totals["not_seen"].dropna())),
        ("Where memory ran out, and memory by category at that moment", _failures_table(failures)),
        *table_per_run("The largest groups of allocations when memory ran out", failure_rows, _groups_table,
                       named_keys(failures)),
    ]  # fmt: skip


def _of_largest_run(rows: pd.DataFrame, bytes_by_run: pd.Series) -> pd.DataFrame:
    """The rows of the run that has the most bytes by `bytes_by_run`; no rows if there are no runs."""
    return rows[rows["run"] == bytes_by_run.idxmax()] if len(bytes_by_run) else rows.iloc[:0]


def _peak_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per run: the phase of its peak, the peak, and its categories."""
    shown = rows.loc[rows["bytes"] != 0, "category"].unique()
    cells = pivoting.pivoted_texts(rows, ["run"], "category", lambda row: size(row["bytes"]))
    columns = (
        ("phase", lambda row: row["fullest_phase"]),
        ("peak", lambda row: size(row["peak_bytes"])),
        *((name, lambda row, name=name: cells.loc[row["run"], name]) for name in cells if name in shown),
    )
    return rows_table(rows.drop_duplicates("run"), gains.LEADING_KEYS, columns, left_aligned=1)


def _failures_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per run out of memory: where, requested and free bytes, and live bytes by category."""
    category_bytes = pivoting.unstacked(rows.groupby(["run", "category"], sort=False)["bytes"].sum(), "category")
    columns = (
        ("range", lambda row: _range_cell(row["in_phase"], row["in_range"])),
        ("requested", lambda row: size(row["requested_bytes"])),
        ("free", lambda row: size(row["free_bytes"])),
        ("in use", lambda row: size(row["live_bytes"])),
        *((name, lambda row, name=name: size(category_bytes.loc[row["run"], name])) for name in category_bytes),
    )
    return rows_table(rows.drop_duplicates("run"), gains.LEADING_KEYS, columns, left_aligned=1)


def _groups_table(rows: pd.DataFrame) -> MarkdownTable:
    """(i) One line per group of allocations of one run, with the operator and line that made it, if recorded."""
    callers = [name for name in CALLER_COLUMNS if (rows[name].fillna("") != "").any()]  # old recordings have none
    lines = [
        (
            escaped(row["category"]), _range_cell(row["phase"], row["range"]), *caller_cells(row, callers),
            count(row["allocations"]), size(row["each_bytes"]), size(row["bytes"]),
        )
        for row in rows.to_dict("records")
    ]  # fmt: skip
    headings = ("category", "allocated in", *callers, "number", "size of each", "total")
    return MarkdownTable(headings, tuple(lines), first_right=2 + len(callers))


def _range_cell(phase: str, path: str) -> str:
    return escaped(as_path([*filter(None, [phase]), *names_in(path)]))


def nested_checkpoint_definitions(results: Iterable[Measured]) -> list[str]:
    """A definition of each value of `checkpoint` that nests, such as "8-2": "checkpoints of 8-2 blocks: ..."."""
    peaks = pd.concat([measured.tables["memory_peak"] for measured in results])
    texts = []
    for value in peaks[CHECKPOINT.key].drop_duplicates().astype(str):
        if len(levels := value.split("-")) > 1:
            inner = " and of these every ".join(levels[1:])
            texts.append(
                f"checkpoints of {value} blocks: {levels[0]} blocks share a checkpoint; while they are recomputed,"
                f" every {inner} of them share another."
            )
    return texts


def _size_and_share(row: dict) -> str:
    return f"{size(row['bytes'])} ({percent(row['share'])})"
