"""The tables that the document of (l) shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from kernel_tables.counters.verdicts import RULES
from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, count, known, percent, rate, ratio, significant
from profile_grid.questions.l_counters.padding import SUMS, UNTOLD
from profile_grid.questions.l_counters.sentences import bandwidth
from profile_grid.tables.apart import pivoted, shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import NO_RANGE
from profile_grid.tables.wording import listed

LED_BY = ("model", "context_length", "mode")
MOST_KERNELS, MOST_PARTS = 8, 10  # of a run


def kernels_table(measured: Measured) -> Table:
    """(l) The kernel configurations of every run with the most time: what they did, and what limits them."""
    rows = measured.tables["counter_kernels"].groupby("run", sort=False).head(MOST_KERNELS)

    def cells(row: dict) -> tuple[str, ...]:
        waits = listed([reason for reason in (row["stall"], row["second_stall"]) if reason])
        filled = f"{percent(row['occupancy'])} of {percent(row['occupancy_possible'])}"
        return (
            measured.label(row["kernel"]), escaped(row["grid"]), row["verdict"], row["limited_by"] or ABSENT,
            waits or ABSENT, significant(row["gpu_time_ms"]), percent(row["share"]), rate(row["flop_per_s"]),
            percent(row["compute_share"]), speed(row["dram_bytes_per_s"]), percent(row["memory_share"]),
            significant(row["flops_per_byte"]), filled, significant(row["waves"]), percent(row["tail"]),
        )  # fmt: skip

    headings = (
        "kernel", "grid", "limited by", "occupancy limited by", "waits for", "ms", "of kernels", "FLOP/s", "of roof",
        "DRAM", "of roof", "FLOP/B", "occupancy", "waves", "tail",
    )  # fmt: skip
    return _by_run(rows, headings, cells, words=5)


def parts_table(measured: Measured) -> Table:
    """(l) The parts of the model with the most time in every run: what all their kernels did."""
    return _sums_table(measured, "part", MOST_PARTS)


def phases_table(measured: Measured) -> Table:
    """(l) The phases of every run: what all their kernels did."""
    return _sums_table(measured, "phase", MOST_PARTS)


def matmuls_table(measured: Measured) -> Table | None:
    """(l) FLOPs of matrix multiplies by counters and by the shapes; None where no run is of this project's model."""
    rows = measured.tables["counter_matmuls"]
    if rows.empty:
        return None

    def cells(row: dict) -> tuple[str, ...]:
        within = ("yes" if row["within_padding"] else "no") if known(row["within_padding"]) else ABSENT
        figures = [significant(row[name] / 1e9, 4) for name in ("counted_flops", "shape_flops")]
        ratios = [ratio(row[name]) for name in ("ratio", "padded_ratio")]
        return row["pass"], escaped(row["part"]), *figures, *ratios, within, percent(row["counted_share"])

    of_shapes = ("counted, GFLOP", "shapes, GFLOP", "counted ÷ shapes", "in tiles ÷ shapes")
    figures = (*of_shapes, "within padding", "of its time counted")
    return _by_run(rows, ("pass", "part", *figures), cells, words=2)


def roofs_table(measured: Measured) -> Table:
    """(l) One line per run: every roof as it was reached, and of the data sheet how much."""
    rows = measured.tables["counter_roofs"]
    names = [roof for roof, own in rows.groupby("roof", sort=False) if own["reached_per_s"].notna().any()]
    wide = pivoted(rows, ["run"], "roof", ["reached_per_s", "reached_share"])

    def cell(run: str, roof: str) -> str:
        value, share = (wide[name][roof][run] for name in ("reached_per_s", "reached_share"))
        text = (speed if roof == "memory" else rate)(value)
        return f"{text} ({percent(share)})" if known(share) else text

    return _by_run(
        rows.drop_duplicates("run"), names, lambda row: tuple(cell(row["run"], roof) for roof in names), words=0
    )


def rules() -> dict[str, str]:
    """(l) The verdicts and their rules."""
    return RULES


def allowances() -> dict[str, str]:
    """(l) What counted FLOPs may differ by for `sums` of slices, and, where the tile is `untold`, for padding."""
    return {"sums": percent(SUMS), "untold": percent(UNTOLD)}


def speed(bytes_per_s) -> str:
    """A rate of memory, or that there is none."""
    return bandwidth(bytes_per_s) if known(bytes_per_s) else ABSENT


def _sums_table(measured: Measured, by: str, most: int) -> Table:
    rows = measured.tables["counter_sums"]
    rows = rows[rows["by"] == by].sort_values("gpu_time_ms", ascending=False, kind="stable")
    rows = rows.groupby("run", sort=False).head(most).sort_values("run", kind="stable", key=_order_of(measured))

    def cells(row: dict) -> tuple[str, ...]:
        name = (row["phase"],) if by == "phase" else (row["phase"], escaped(row["name"] or NO_RANGE))
        return (
            *name, significant(row["gpu_time_ms"]), percent(row["share"]), count(round(row["invocations"], 1)),
            significant(row["flops"] / 1e9), percent(row["compute_share"]), significant(row["dram_bytes"] / 1e9),
            percent(row["memory_share"]), significant(row["flops_per_byte"]),
        )  # fmt: skip

    names = ("phase",) if by == "phase" else ("pass", by)
    figures = ("ms", "of kernels", "launches", "GFLOP", "of roof", "DRAM, GB", "of roof", "FLOP/B")
    return _by_run(rows, (*names, *figures), cells, words=len(names))


def _order_of(measured: Measured) -> Callable[[pd.Series], pd.Series]:
    order = {run: number for number, run in enumerate(measured.runs["run"])}
    return lambda runs: runs.map(order)


def _by_run(rows: pd.DataFrame, headings: Sequence[str], cells: Callable, words: int) -> Table:
    """One line per row, led by the dimensions of its run; the first `words` cells are text."""
    shown = shown_dimensions(rows, LED_BY)
    lines = tuple((*leading_cells(row, shown), *cells(row)) for row in rows.to_dict("records"))
    return Table((*headings_of(shown), *headings), lines, first_right=len(shown) + words)
