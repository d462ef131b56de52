"""The course of one step: live bytes by category over the events of the run that needs most."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Tables
from profile_grid.figures.layout import alone
from profile_grid.figures.shown import without_figures
from profile_grid.figures.theme import SMALL, SOFT, WIDTH
from profile_grid.quantities import memory
from profile_grid.questions.i_memory.categories_figure import NO_FIGURES
from profile_grid.questions.i_memory.style import ORDER, category_fill, unit_of
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import MEMORY
from profile_grid.tables.names import OUTSIDE

AXIS_PX, HEIGHT_PX = 70, 260
ROOM, LINE = 1.04, 0.06  # of the height, above all areas: the names of the phases, on two lines
BYTES = "_bytes"


def draw(tables: Tables) -> Drawing:
    """Areas on each other, with the phases above: of the run that needs most, among those that train if any does."""
    notes = tuple(marks.missing_notes(without_figures(tables["runs"], MEMORY)))
    run = run_to_draw(tables["memory_peak"])
    if run is None:
        return Drawing(reason=NO_FIGURES, notes=notes)
    timeline = tables["memory_timeline"]
    own = timeline[timeline["run"] == run]
    unit = unit_of(own["live_bytes"].max())
    rows = _long(own, unit[0])
    chart = alt.layer(_areas(rows, unit[1]), *_phase_marks(own, rows["end"].max()))
    moments = f"of {own['moment'].nunique()} moments each is the fullest of its slice of the allocations and releases"
    size = {"width": WIDTH - AXIS_PX, "height": HEIGHT_PX}
    return Drawing(alone(chart.properties(**size)), (f"Run {run}, its last measured step; {moments}.", *notes))


def _areas(rows: pd.DataFrame, unit_name: str) -> alt.Chart:
    """The categories on each other, each moment as long as it is the last."""
    order = alt.Axis(title="allocations and releases, in order", labels=False, ticks=False, grid=False)
    x = alt.X("moment:Q", scale=alt.Scale(domain=[0, int(rows["moment"].max())], nice=False), axis=order)
    seen = marks.tooltip(
        rows, ("category", "category"), ("size", "live"), ("phase", "phase"), ("ms", "after (ms)", marks.DIGITS)
    )
    y = alt.Y("start:Q", axis=alt.Axis(title=f"live ({unit_name})"))
    areas = alt.Chart(rows).mark_area(interpolate="step-after", opacity=1)
    return areas.encode(x=x, y=y, y2="end", fill=category_fill(rows["category"], lined=False), tooltip=seen)


def _phase_marks(own: pd.DataFrame, top: float) -> tuple[alt.Chart, alt.Chart]:
    """A line where each phase begins, and its name above all areas."""
    names = own["phase"].astype("str")
    begins = own.assign(phase=names)[names.ne(names.shift()) & (names != OUTSIDE)]
    begins = begins.assign(start=[top * (ROOM + LINE * (line % 2)) for line in range(len(begins))])
    marked = alt.Chart(begins[["moment", "phase", "start"]]).encode(x="moment:Q")
    lines = marked.mark_rule(color=SOFT, strokeDash=[2, 2])
    return lines, marked.mark_text(align="left", dx=3, fontSize=SMALL).encode(y="start:Q", text="phase:N")


def run_to_draw(peaks: pd.DataFrame) -> str | None:
    """The run that needs most memory among those with a backward pass, else among all; None where there is none."""
    if peaks.empty:
        return None
    trains = peaks[(peaks["category"] == "activations") & (peaks["bytes"] > 0)]
    chosen = peaks[peaks["run"].isin(trains["run"])] if len(trains) else peaks
    return str(chosen.loc[chosen["peak_bytes"].idxmax(), "run"])


def _long(own: pd.DataFrame, unit: int) -> pd.DataFrame:
    """One row per moment and category, from `start` to `end` in the unit, until the `next` moment."""
    keys = [*LEADING, "moment", "ms", "phase"]
    names = {f"{name.replace(' ', '_')}{BYTES}": name for name in ORDER}
    rows = own.astype({"phase": "str"}).melt(keys, list(names), "column", "bytes")
    rows["category"] = rows["column"].map(names)
    rows = rows.assign(_order=rows["category"].map(ORDER)).sort_values(["moment", "_order"], kind="stable")
    end = rows.groupby("moment", sort=False)["bytes"].cumsum()
    rows = rows.assign(start=(end - rows["bytes"]) / unit, end=end / unit, size=rows["bytes"].map(memory))
    present = rows.groupby("category")["bytes"].transform("max") > 0
    return rows[present].drop(columns=["column", "_order", "mode"])


def caption(tables: Tables) -> str:
    """Where the step is fullest."""
    peaks = tables["memory_peak"]
    run = run_to_draw(peaks)
    if run is None:
        return NO_FIGURES
    row = peaks[peaks["run"] == run].iloc[0]
    return f"The step of {run} is fullest in {row['fullest_phase']}: {memory(row['peak_bytes'])}."
