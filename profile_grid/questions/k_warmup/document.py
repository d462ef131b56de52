"""What the document of (k) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, percent, ratio, significant, with_spread
from profile_grid.questions.k_warmup.table import of_whole_steps
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.wording import leaders, listed, of_all, places, run_in_words

NOT_KEPT = "Not answered: no timed run kept the times of its warm-up steps."
MOST_CAUSES = 3
REPORTED_COUNTS = (0, 1, 2, 5)
LED_BY = ("model", "context_length", "mode")


def sentences(measured: Measured) -> list[str]:
    """(k) The answer, then the first step, and the error of fewer warm-up steps."""
    enough, reports = (of_whole_steps(measured.tables[name]) for name in ("warmup_enough", "warmup_reports"))
    causes = [_causes(own) for _, own in measured.tables["warmup_first_step"].groupby("run", sort=False)]
    if enough.empty:
        return [NOT_KEPT, *causes]
    found = [_enough(enough), _first(enough), *_phase(measured.tables["warmup_enough"]), *_fewer(enough, reports)]
    return [*found, *causes]


def _enough(enough: pd.DataFrame) -> str:
    """The largest number that is enough, and the runs of which it is not known: where no fewer than all that were taken
    would do, nothing tells whether they do."""
    is_open, taken = enough["enough"] == enough["taken"], int(enough["taken"].max())
    known, unknown = enough[~is_open], enough[is_open]
    text = f"{_steps(taken)} {'was' if taken == 1 else 'were'} taken."
    if len(known):
        most = int(known["enough"].max())
        needing = known[known["enough"] == most]
        runs = of_all(len(known), len(enough), "run") if len(unknown) else "every run"
        by = f" (needed by {places(needing)})" if most and len(needing) < len(known) else ""
        within = f"to within {interval(known['tolerance'], percent)}{by}"
        text = f"{_steps(most)} {'is' if most == 1 else 'are'} enough in {runs}, {within}; {text}"
    if len(unknown):
        text += (
            f" How many are enough is not known for {places(unknown)}: with the last of them the mean still changed by"
            f" more than {interval(unknown['tolerance'], percent)}; take more there."
        )
    return text


def _first(enough: pd.DataFrame) -> str:
    """How slow the first step is."""
    return f"Beside the mean of the measured steps, the first takes {interval(enough['first_ratio'], ratio)}."


def _phase(enough: pd.DataFrame) -> list[str]:
    """The phase whose first time is furthest from its later ones."""
    phases = enough[enough["phase"] != WHOLE_STEP]
    if phases["phase"].nunique() < 2:
        return []
    extra = phases.assign(extra=phases["first_ms"] - phases["measured_mean_ms"])
    most = extra.loc[extra.groupby("run")["extra"].idxmax()]
    return [f"Most of what it takes longer is in {leaders([f'**{escaped(phase)}**' for phase in most['phase']])}."]


def _fewer(enough: pd.DataFrame, reports: pd.DataFrame) -> list[str]:
    """How far off the mean would be after fewer warm-up steps."""
    fewer = [number for number in REPORTED_COUNTS if number < int(enough["taken"].max())]
    taken, told = reports["run"].map(enough.set_index("run")["taken"]), []
    for number in fewer:
        own = reports[(reports["warmup_steps"] == number) & (taken > number)]
        told.append(f"{interval((own['ratio'] - 1).abs(), percent)} after {number}")
    return [f"The mean would have been off by {listed(told)}."] if told else []


def _causes(own: pd.DataFrame) -> str:
    """Why the first step of a run takes longer than later ones: the causes with most of it."""
    first, extra = own["first_ms"].sum(), own["extra_ms"].sum()
    place = run_in_words(own.iloc[0])
    if extra <= 0:
        return f"Captured from before it, the first step takes no longer than later ones in {place}."
    most = own[own["extra_ms"] > 0].nlargest(MOST_CAUSES, "extra_ms")
    told = [f"**{escaped(row.cause)}** ({significant(row.extra_ms)} ms)" for row in most.itertuples()]
    return (
        f"Captured from before it, the first step takes {significant(first)} ms in {place}, {significant(extra)} ms"
        f" more than later ones; what grows most is {listed(told)}."
    )


def _steps(count: int) -> str:
    return f"{count} warm-up step{'' if count == 1 else 's'}"


def reports_table(measured: Measured) -> MarkdownTable:
    """(k) One line per run: the step that would have been reported after so many warm-up steps."""
    rows = of_whole_steps(measured.tables["warmup_reports"])
    taken = int(rows["warmup_steps"].max())
    counts = [number for number in REPORTED_COUNTS if number < taken] + [taken]
    cells = {(row.run, row.warmup_steps): with_spread(row.mean_ms, row.std_ms) for row in rows.itertuples()}
    runs = rows.drop_duplicates("run")
    shown = shown_dimensions(runs, LED_BY)
    lines = tuple(
        (*leading_cells(row, shown), *(cells.get((row["run"], one), ABSENT) for one in counts))
        for row in runs.to_dict("records")
    )
    return MarkdownTable((*headings_of(shown), *(f"after {one}, ms" for one in counts)), lines, first_right=len(shown))


def first_step_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(k) Of each run whose first step was captured the name, and where that takes longer than the steps behind it."""
    rows = measured.tables["warmup_first_step"]
    headings = ("cause", "first step, ms", "later, ms", "more, ms", "calls", "later")
    return [
        (name, MarkdownTable(headings, tuple(_cause(row) for row in own.to_dict("records")), first_right=1))
        for name, own in rows.groupby("run", sort=False)
    ]


def _cause(row: dict) -> tuple[str, ...]:
    times = (significant(row[name]) for name in ("first_ms", "later_ms", "extra_ms"))
    return escaped(row["cause"]), *times, count(row["first_calls"]), count(row["later_calls"])


def enough_table(measured: Measured) -> MarkdownTable:
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
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))
