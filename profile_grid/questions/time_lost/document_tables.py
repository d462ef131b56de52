"""The tables that the document of the diagnosis shows."""

from __future__ import annotations

from kernel_tables.markdown import Table, code
from profile_grid.quantities import ABSENT, percent, significant
from profile_grid.questions.time_lost.bounds import at_most
from profile_grid.study.dimensions import BY_KEY
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import LED_BY, headings_of, leading_cells
from profile_grid.tables.measured import Measured

ALWAYS = (*LED_BY, "mode")
MOST = 4  # findings of a run


def findings_table(measured: Measured) -> Table:
    """One line per run: what its diagnosis finds, largest gain first, each with the most that mending it gains."""
    found = measured.tables["time_lost"]
    said = at_most(found[~found["abstained"].astype(bool)])
    shown = shown_dimensions(measured.runs, ALWAYS)
    lines = []
    for run in measured.runs.to_dict("records"):
        own = said[said["run"] == run["run"]]
        told = [_told(row) for row in own.head(MOST).itertuples()]
        more = [f"and {len(own) - MOST} more"] if len(own) > MOST else []
        diagnosed = run["run"] in set(found["run"])
        lines.append((*leading_cells(run, shown), ", ".join([*told, *more]) or ("nothing" if diagnosed else ABSENT)))
    return Table((*headings_of(shown), "found, with the most that it could gain"), tuple(lines), first_right=99)


def predictions_table(measured: Measured) -> Table | None:
    """One line per remedy that the grid holds: the most that was said to be gained, and what was; None without one."""
    rows = measured.tables["predictions"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, ALWAYS)
    lines = tuple(
        (
            *leading_cells(row, shown), BY_KEY[row["remedy"]].heading, _codes(row["codes"]),
            f"{significant(row['predicted_ms'])} ({percent(row['predicted_percent'] / 100)})",
            f"{significant(row['measured_ms'])} ({percent(row['measured_percent'] / 100)})",
            "yes" if row["holds"] else "**no**",
        )
        for row in rows.to_dict("records")
    )  # fmt: skip
    headings = ("remedy", "for", "at most, ms (of a step)", "gained, ms (of a step)", "holds")
    return Table((*headings_of(shown), *headings), lines, first_right=len(shown) + 2)


def _told(row) -> str:
    return f"{code(row.code, in_table=True)} {significant(row.ms)} ms ({percent(row.percent / 100)})"


def _codes(codes: str) -> str:
    return ", ".join(code(one, in_table=True) for one in codes.split(", ") if one) or "no rule spoke"
