"""The tables that the document of (a) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, known, percent, ratio, with_spread
from profile_grid.questions.a_forward_time.sentences import LAUNCH_BOUND_IDLE_SHARE
from profile_grid.questions.a_forward_time.table import MATCH_TOLERANCE
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODEL
from profile_grid.tables.apart import sorted_values, split
from profile_grid.tables.cells import NOT_IN_GRID, run_table, status_word
from profile_grid.tables.measured import Measured

__all__ = ["LAUNCH_BOUND_IDLE_SHARE", "MATCH_TOLERANCE", "forward_time_table", "timing_pivots"]


def forward_time_table(measured: Measured) -> Table:
    """(a) The forward pass as Python's timer, NVTX and the GPU see it."""
    device = measured.words.device
    headings = (
        "Python, ms", "profiled step, ms", "ratio", "within 5 %", "NVTX `forward`, ms", f"{device} first to last, ms",
        f"{device} busy, ms", f"{device} idle in step",
    )  # fmt: skip

    def cells(row) -> tuple[str, ...]:
        python = with_spread(row.unprofiled_step_ms, row.unprofiled_step_std_ms)
        profiled = with_spread(row.step_wall_ms, row.step_wall_std_ms)
        return (
            python if known(row.unprofiled_step_ms) else status_word(row.timing_status),
            profiled if known(row.step_wall_ms) else status_word(row.capture_status),
            ratio(row.overhead_ratio, row.overhead_ratio_std),
            {True: "yes", False: "no"}.get(row.matches_python, ABSENT) if known(row.matches_python) else ABSENT,
            with_spread(row.forward_wall_ms, row.forward_wall_std_ms),
            with_spread(row.forward_gpu_span_ms, row.forward_gpu_span_std_ms),
            with_spread(row.forward_gpu_busy_ms, row.forward_gpu_busy_std_ms),
            percent(row.idle_share),
        )

    return run_table(
        measured, headings, {row.run: cells(row) for row in measured.inference("forward_time").itertuples()}
    )


def timing_pivots(measured: Measured) -> list[tuple[str, Table]]:
    """Python's timing, models by contexts, with the title of each combination of further dimensions that vary; nothing
    where that would be a single row or column."""
    rows = measured.inference("forward_time")
    shown = (MODEL.key, CONTEXT_LENGTH.key)
    if any(rows[key].nunique() < 2 for key in shown):
        return []
    return [(title, _timing_pivot(part)) for title, part in split(rows, (*shown, "mode"))]


def _timing_pivot(rows) -> Table:
    contexts, models = sorted_values(rows, CONTEXT_LENGTH.key), sorted_values(rows, MODEL.key)
    cells = {
        (row.model, row.context_length): with_spread(row.unprofiled_step_ms, row.unprofiled_step_std_ms)
        if known(row.unprofiled_step_ms)
        else status_word(row.timing_status)
        for row in rows.itertuples()
    }
    lines = tuple(
        (escaped(model), *(cells.get((model, context), NOT_IN_GRID) for context in contexts)) for model in models
    )
    headings = (CONTEXT_LENGTH.title(context) for context in contexts)
    return Table((MODEL.heading, *headings), lines, first_right=1)
