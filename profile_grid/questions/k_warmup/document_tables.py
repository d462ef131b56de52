"""The tables that the document of (k) shows."""

from __future__ import annotations

from kernel_tables.markdown import Table, escaped
from profile_grid.quantities import ABSENT, count, percent, ratio, significant, with_spread
from profile_grid.questions.k_warmup.sentences import SHOWN_COUNTS
from profile_grid.questions.k_warmup.table import of_whole_steps
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured

LED_BY = ("model", "context_length", "mode")


def reports_table(measured: Measured) -> Table:
    """(k) One line per run: the step that would have been reported after so many warm-up steps."""
    rows = of_whole_steps(measured.tables["warmup_reports"])
    taken = int(rows["warmup_steps"].max())
    counts = [one for one in SHOWN_COUNTS if one < taken] + [taken]
    cells = {(row.run, row.warmup_steps): with_spread(row.mean_ms, row.std_ms) for row in rows.itertuples()}
    runs = rows.drop_duplicates("run")
    shown = shown_dimensions(runs, LED_BY)
    lines = tuple(
        (*leading_cells(row, shown), *(cells.get((row["run"], one), ABSENT) for one in counts))
        for row in runs.to_dict("records")
    )
    return Table((*headings_of(shown), *(f"after {one}, ms" for one in counts)), lines, first_right=len(shown))


def first_step_tables(measured: Measured) -> list[tuple[str, Table]]:
    """(k) Of each run whose first step was captured the name, and where that takes longer than the steps behind it."""
    rows = measured.tables["warmup_first_step"]
    headings = ("cause", "first step, ms", "later, ms", "more, ms", "calls", "later")
    return [
        (name, Table(headings, tuple(_cause(row) for row in own.to_dict("records")), first_right=1))
        for name, own in rows.groupby("run", sort=False)
    ]


def _cause(row: dict) -> tuple[str, ...]:
    times = (significant(row[name]) for name in ("first_ms", "later_ms", "extra_ms"))
    return escaped(row["cause"]), *times, count(row["first_calls"]), count(row["later_calls"])


def enough_table(measured: Measured) -> Table:
    """(k) One line per run: its first step beside the measured ones, and how many warm-up steps are enough."""
    rows = of_whole_steps(measured.tables["warmup_enough"])
    shown = shown_dimensions(rows, LED_BY)
    lines = []
    for row in rows.to_dict("records"):
        open_end = row["enough"] == row["taken"] > 0
        enough = f"{row['taken']} or more" if open_end else count(row["enough"])
        figures = (significant(row["first_ms"]), significant(row["measured_mean_ms"]), ratio(row["first_ratio"]))
        lines.append((*leading_cells(row, shown), *figures, percent(row["tolerance"]), enough))
    headings = ("first step, ms", "measured, ms", "first ÷ measured", "tolerance", "enough")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))
