"""A stacked bar per run: live bytes by category at the peak of its step."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Tables
from profile_grid.figures.panels import Frame
from profile_grid.figures.run_selection import by_size, labels, without_figures
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import GIBIBYTE, MEBIBYTE, memory, percent
from profile_grid.study.dimensions import KEYS
from profile_grid.study.stages import MEMORY

NAMES_PX, MAX_BARS = 270, 60
NO_FIGURES = "No run whose allocations were to be recorded has a complete history."


def unit_of(largest_bytes: float) -> tuple[int, str]:
    """(bytes, name) of the unit of an axis with sizes up to this one."""
    return (GIBIBYTE, "GiB") if largest_bytes >= GIBIBYTE else (MEBIBYTE, "MiB")


def draw(tables: Tables) -> Drawing:
    """Bars in the order of models, contexts and modes, with the peak after each."""
    runs, peaks = tables["runs"], by_size(tables["memory_peak"], tables["runs"])
    unit, unit_name = unit_of(max(peaks["peak_bytes"], default=0))
    texts = [f"{memory(row.peak_bytes)}, in {row.fullest_phase}" for row in peaks.itertuples()]
    parts = peaks.assign(size=peaks["bytes"].map(memory), live=peaks["bytes"] / unit, bar=labels(peaks), text=texts)
    rows = marks.placed(parts[parts["bytes"] > 0], "live", "category")
    names = list(dict.fromkeys(parts["bar"]))
    rows = rows[rows["bar"].isin(names[:MAX_BARS])]
    fills = marks.part_fills(rows, "category")
    x = alt.X("start:Q", axis=alt.Axis(title=f"in use at the peak of a step ({unit_name})"))

    def panel(data: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
        tooltip = marks.tooltip(data, ("category", "category"), ("size", "in use"), ("share", "share", marks.SHARE))
        channels = {"x": x, "y": marks.bar_axis(names[:MAX_BARS])}
        bars = marks.bars(data, channels, fills, tooltip)
        return bars.properties(width=WIDTH - NAMES_PX, height=alt.Step(marks.BAR_PX))

    note = f"The first {MAX_BARS} of {len(names)} runs are drawn; the table has all."
    notes = [note] if len(names) > MAX_BARS else []
    return Frame(KEYS, NO_FIGURES).drawing(rows, runs, without_figures(runs, MEMORY), panel, notes)


def result(tables: Tables) -> str:
    """The highest peak and its largest category."""
    peaks = tables["memory_peak"]
    if peaks.empty:
        return ""
    row = peaks[peaks["peak_bytes"] == peaks["peak_bytes"].max()].nlargest(1, "bytes").iloc[0]
    size, share = memory(row["peak_bytes"]), percent(row["share"])
    return f"The highest peak is {size}; {share} of it is {row['category']}"
