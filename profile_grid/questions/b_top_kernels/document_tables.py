"""The table that the document of (b) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table
from profile_grid.quantities import count, percent, with_spread
from profile_grid.study.dimensions import MODE, MODES, keys_without
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import LED_BY, NOT_IN_GRID, headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, FORWARD


def top_kernel_table(measured: Measured) -> Table:
    """The top kernel of every mode side by side: label, time per pass, invocations per pass, share."""
    top = measured.tables["top_kernels"]
    top = top[top["rank"] == 1]
    modes = [mode for mode in MODES if mode in set(measured.runs["mode"])]
    cells = {
        row.run: _top_cell(row, measured)
        for mode in modes
        for row in top[(top["mode"] == mode) & (top["scope"] == _scope(mode))].itertuples()
    }
    shown, others = shown_dimensions(measured.runs, LED_BY, hidden=(MODE.key,)), keys_without(MODE.key)
    lines = []
    for _, runs in measured.runs.groupby(others, sort=False):
        by_mode = {row["mode"]: row for row in runs.to_dict("records")}
        first = next(iter(by_mode.values()))
        lines.append((*leading_cells(first, shown), *(_cell(cells, by_mode.get(mode)) for mode in modes)))
    return Table((*headings_of(shown), *(MODES[mode] for mode in modes)), tuple(lines), first_right=99)


def _cell(cells: dict[str, str], run: dict | None) -> str:
    if run is None:
        return NOT_IN_GRID
    return cells.get(run["run"], status_word(run[CAPTURE.status_column]))


def _scope(mode: str) -> str:
    return FORWARD if mode == FORWARD else ALL_PHASES


def _top_cell(row, measured: Measured) -> str:
    time = with_spread(row.gpu_time_ms, row.gpu_time_std_ms, "ms")
    times = count(row.invocations) + ("" if row.same_in_every_step else " (mean)")
    return f"{measured.label(row.kernel)}: {time}, {times} ×, {percent(row.share)}"
