"""The tables that the document of (n) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, count, known, percent, significant, with_spread
from profile_grid.questions.n_communication.losses import BEHIND_A_REDUCTION
from profile_grid.questions.n_communication.table import PARTS, communication_of_steps
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import CONTEXT_LENGTH, GPUS, MODE, MODEL, PARALLEL
from profile_grid.tables.accuracy import errors_table
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured

LED_BY = (MODEL.key, CONTEXT_LENGTH.key, MODE.key, GPUS.key, PARALLEL.key)
MOST_COLLECTIVES = 40
NO_BASE = "no run on one GPU has this batch"


def times_table(measured: Measured) -> Table | None:
    """(n) One line per run: its step, the same without communication, and the difference."""
    rows = measured.tables["communication_times"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = []
    for row in rows.to_dict("records"):
        step = with_spread(row["mean_ms"], row["std_ms"]) if row["status"] == COMPLETE else status_word(row["status"])
        without = with_spread(row["without_mean_ms"], row["without_std_ms"])
        lines.append(
            (*leading_cells(row, shown), step, without, significant(row["cost_ms"]), percent(row["cost_share"]))
        )
    headings = ("step, ms", "without communication, ms", "difference, ms", "of the step")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def steps_table(measured: Measured) -> Table | None:
    """(n) One line per run and rank: what fills a captured step, and communication in all."""
    rows = communication_of_steps(measured.tables["communication_steps"])
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            count(row["rank"]),
            *(significant(row[f"{name}_ms"]) for name in (*PARTS, "step", "communication", "transfer", "waiting")),
            percent(row["overlap"]),
        )
        for row in rows.to_dict("records")
    ]
    headings = (
        "rank", "compute, ms", "exposed communication, ms", "exposed memory, ms", "idle, ms", "step, ms",
        "communication, ms", "transfer, ms", "waiting, ms", "overlap",
    )  # fmt: skip
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def collectives_table(measured: Measured) -> Table | None:
    """(n) One line per run, size and bucket, those with the most time first where there are many."""
    rows = measured.tables["communication_collectives"]
    if rows.empty:
        return None
    if len(rows) > MOST_COLLECTIVES:
        longest = (rows["duration_ms"] * rows["per_step"]).nlargest(MOST_COLLECTIVES).index
        rows = rows.loc[sorted(longest)]
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            escaped(row["operation"]),
            count(row["bucket"]),
            significant(row["bytes"] / 1e6) if known(row["bytes"]) else ABSENT,
            count(row["per_step"]),
            *(significant(row[name]) for name in ("duration_ms", "transfer_ms", "algorithm_gb_per_s", "bus_gb_per_s")),
        )
        for row in rows.to_dict("records")
    ]
    headings = (
        "operation", "bucket", "MB", "per step", "time, ms", "transfer, ms", "algorithm, GB/s", "bus, GB/s",
    )  # fmt: skip
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown) + 1)


def all_reduce_table(measured: Measured) -> Table | None:
    """(n) One line per run and size of all-reduce alone."""
    rows = measured.tables["communication_all_reduce"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, (GPUS.key,))
    lines = [
        (
            *leading_cells(row, shown),
            significant(row["bytes"] / 1e6),
            with_spread(row["mean_ms"], row["std_ms"]),
            significant(row["algorithm_gb_per_s"]),
            significant(row["bus_gb_per_s"]),
        )
        for row in rows.to_dict("records")
    ]
    headings = ("MB", "time, ms", "algorithm, GB/s", "bus, GB/s")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def losses_table(measured: Measured) -> Table | None:
    """(n) One line per run: how far its losses are from those on one GPU, and the verdict."""
    rows = measured.tables["communication_losses"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            count(row["losses"]),
            *(f"{row[name]:.1e}" if known(row[name]) else ABSENT for name in ("first_off", "largest_off", "explained")),
            _verdict(row),
        )
        for row in rows.to_dict("records")
    ]
    headings = ("losses", "first off by", "at most off by", "explained of the first", "verdict")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _verdict(row: dict) -> str:
    """Whether the losses are those of one GPU, in words."""
    if not known(row["within_precision"]):
        return NO_BASE
    if row["within_precision"]:
        return "the same"
    agreeing = row["agreeing"]
    return f"the same for {agreeing}, then apart" if agreeing >= BEHIND_A_REDUCTION else "not the same"


def accuracy_table(measured: Measured) -> Table | None:
    """(n) One line per run: how far its first step is from fp64, and the verdict."""
    return errors_table(measured.tables["communication_accuracy"], LED_BY)


def scaling_table(measured: Measured) -> Table | None:
    """(n) One line per run and kind of scaling."""
    rows = measured.tables["communication_scaling"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            row["kind"],
            with_spread(row["mean_ms"], row["std_ms"]),
            with_spread(row["base_mean_ms"], row["base_std_ms"]),
            significant(row["speed_up"]),
            with_spread(row["efficiency"], row["efficiency_std"]),
        )
        for row in rows.to_dict("records")
    ]
    headings = ("scaling", "step, ms", "on one GPU, ms", "throughput ÷ one GPU's", "efficiency")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown) + 1)
