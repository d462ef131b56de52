"""The tables that the document of (h) shows."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from kernel_tables.markdown import Table
from profile_grid.quantities import ABSENT, known, memory, ratio, significant
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import ATTENTION, keys_without
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import pivoted, shown_dimensions, sorted_values
from profile_grid.tables.cells import headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP

PLACE = keys_without(ATTENTION.key)
CELL = ["mean_ms", "speed_up", "speed_up_std", "status", "peak_allocated_bytes"]


def steps_table(measured: Measured) -> Table | None:
    """(h) One line per configuration, one column per attention: time of a step, and beside the written-out one its
    speed-up; or why there is none."""
    return _by_attention(measured, _time)


def memory_table(measured: Measured) -> Table | None:
    """(h) The same with the most memory that tensors took; None on a CPU, which does not tell."""
    known_peaks = measured.tables["attention_times"]["peak_allocated_bytes"].notna().any()
    return _by_attention(measured, _peak) if known_peaks else None


def operator_table(measured: Measured) -> Table | None:
    """(h) One line per run: the operator of all layers in a forward pass beside the written-out one."""
    rows = measured.tables["attention_operator"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, (*ratio_tables.ALWAYS, ATTENTION.key))
    lines = tuple(
        (
            *leading_cells(row, shown), significant(row["base_gpu_time_ms"]), significant(row["gpu_time_ms"]),
            ratio(row["speed_up"], row["speed_up_std"]), ratio(row["ideal_by_flops"]), ratio(row["ideal_by_bytes"]),
        )
        for row in rows.to_dict("records")
    )  # fmt: skip
    headings = ("written out, ms", "this, ms", "times as fast", "ideal by FLOP/s", "ideal by bytes/s")
    return Table((*headings_of(shown), *headings), lines, first_right=len(shown))


def _by_attention(measured: Measured, cell: Callable[[pd.Series], str]) -> Table | None:
    rows = measured.tables["attention_times"]
    rows = rows[rows["phase"] == WHOLE_STEP]
    if rows.empty:
        return None
    values = sorted_values(rows, ATTENTION.key)
    wide = pivoted(rows, PLACE, ATTENTION.key, CELL)
    places = rows.drop_duplicates(PLACE)
    shown = shown_dimensions(places, ratio_tables.ALWAYS, hidden=(ATTENTION.key,))
    lines = []
    for row in places.to_dict("records"):
        own = wide.loc[tuple(row[key] for key in PLACE)]
        cells = (cell(pd.Series({name: own[(name, value)] for name in CELL})) for value in values)
        lines.append((*leading_cells(row, shown), *cells))
    headings = (f"{value} (written out)" if value == ATTENTION.default else str(value) for value in values)
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _time(cell: pd.Series) -> str:
    if not known(cell["mean_ms"]):
        return _without_figure(cell)
    if not known(cell["speed_up"]):
        return significant(cell["mean_ms"])
    return ratio_tables.time_and_gain(cell["mean_ms"], cell["speed_up"], cell["speed_up_std"])


def _peak(cell: pd.Series) -> str:
    if cell["status"] == COMPLETE and known(cell["peak_allocated_bytes"]):
        return memory(cell["peak_allocated_bytes"])
    return _without_figure(cell)


def _without_figure(cell: pd.Series) -> str:
    return status_word(cell["status"]) if known(cell["status"]) else ABSENT
