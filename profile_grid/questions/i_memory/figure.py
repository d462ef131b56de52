"""Figures of (i): live bytes by category at the peak of each step, and in the course of one step."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.panels import AXIS_PX, Drawing, Figure, Frame, Tables, bars_of_runs
from profile_grid.figures.run_selection import labels, runs_without_results, sorted_by_size
from profile_grid.figures.theme import SMALL, SOFT, WIDTH
from profile_grid.quantities import GIBIBYTE, MEBIBYTE, memory, percent
from profile_grid.study.dimensions import KEYS, LEADING
from profile_grid.study.stages import MEMORY
from profile_grid.tables.names import OUTSIDE

NOT_RECORDED = "No run whose allocations were to be recorded has a complete history."


def unit_of(largest_bytes: float) -> tuple[int, str]:
    """(bytes, name) of the unit of an axis with sizes up to this one."""
    return (GIBIBYTE, "GiB") if largest_bytes >= GIBIBYTE else (MEBIBYTE, "MiB")


def draw_categories(tables: Tables) -> Drawing:
    """Bars in the order of models, contexts and modes, with the peak after each."""
    runs, peaks = tables["runs"], sorted_by_size(tables["memory_peak"], tables["runs"])
    unit, unit_name = unit_of(max(peaks["peak_bytes"], default=0))
    texts = [f"{memory(row.peak_bytes)}, in {row.fullest_phase}" for row in peaks.itertuples()]
    parts = peaks.assign(size=peaks["bytes"].map(memory), live=peaks["bytes"] / unit, bar=labels(peaks), text=texts)
    rows = marks.stacked(parts[parts["bytes"] > 0], "live", "category")
    title = f"in use at the peak of a step ({unit_name})"
    return bars_of_runs(
        rows, list(dict.fromkeys(parts["bar"])), color_column="category", axis_title=title,
        tooltip=(("category", "category"), ("size", "in use"), ("share", "share", marks.SHARE)),
        runs=runs, missing=runs_without_results(runs, MEMORY), reason=NOT_RECORDED,
    )  # fmt: skip


def result_categories(tables: Tables) -> str:
    """The highest peak and its largest category."""
    peaks = tables["memory_peak"]
    row = peaks[peaks["peak_bytes"] == peaks["peak_bytes"].max()].nlargest(1, "bytes").iloc[0]
    size, share = memory(row["peak_bytes"]), percent(row["share"])
    return f"The highest peak is {size}; {share} of it is {row['category']}"


HEIGHT_PX = 260
NAMES_AT, LINE = 1.1, 0.06  # of the height: where the names of the phases are, above all areas; between their lines
LEAST_NAMED = 0.01  # of the step: the shortest phase that is marked


def draw_timeline(tables: Tables) -> Drawing:
    """The run with the highest peak, if possible one with a backward pass: stacked areas, with the phases above."""
    run, timeline = run_to_draw(tables["memory_peak"]), tables["memory_timeline"]
    moments = timeline[timeline["run"] == run].sort_values("moment", kind="stable")
    unit, unit_name = unit_of(max(moments["live_bytes"], default=0))
    rows = _category_rows(moments, unit)

    def panel(areas: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
        layers = (_areas(areas, unit_name), *_phase_marks(moments, areas["end"].max()), _peak(areas))
        return alt.layer(*layers, width=WIDTH - AXIS_PX, height=HEIGHT_PX)

    runs, slices = tables["runs"], moments["moment"].nunique()
    notes = [
        f"{name}, last measured step, in {slices} slices of its allocations, each drawn at its peak."
        for name in labels(moments.head(1))
    ]
    return Frame(KEYS, NOT_RECORDED).drawing(rows, runs, runs_without_results(runs, MEMORY), panel, notes)


def _areas(rows: pd.DataFrame, unit_name: str) -> alt.Chart:
    """The stacked areas of the categories; a value lasts until the next moment."""
    time = alt.Axis(title="time on the host since the step began (ms)", grid=False, labelFlush=False)
    x = alt.X("ms:Q", scale=alt.Scale(nice=False, zero=False), axis=time)
    tooltip = marks.tooltip(
        rows, ("category", "category"), ("size", "in use"), ("phase", "phase"), ("ms", "after (ms)", marks.DIGITS)
    )
    y = alt.Y("start:Q", axis=alt.Axis(title=f"in use ({unit_name})"))
    areas = alt.Chart(rows).mark_area(interpolate="step-after", opacity=1)
    return areas.encode(x=x, y=y, y2="end", fill=marks.part_fills(rows, "category", lined=False), tooltip=tooltip)


def _phase_marks(moments: pd.DataFrame, top: float) -> tuple[alt.Chart, alt.Chart]:
    """A line where each phase begins that is long enough, and its name above all areas."""
    names = moments["phase"].astype("str")
    begins = moments.assign(phase=names)[names.ne(names.shift()) & (names != OUTSIDE)]
    lasts = begins["ms"].shift(-1, fill_value=moments["ms"].max()) - begins["ms"]
    begins = begins[lasts >= LEAST_NAMED * moments["ms"].max()]  # a shorter one has no room for its name
    begins = begins.assign(start=[top * (NAMES_AT + LINE * (line % 2)) for line in range(len(begins))])
    marked = alt.Chart(begins[["ms", "phase", "start"]]).encode(x="ms:Q")
    texts = marked.mark_text(align="left", baseline="top", dx=3, fontSize=SMALL)
    return marked.mark_rule(color=SOFT, strokeDash=[2, 2]), texts.encode(y="start:Q", text="phase:N")


def _peak(rows: pd.DataFrame) -> alt.Chart:
    """A label with the live bytes at the peak."""
    top = rows.loc[[rows["end"].idxmax()]]
    total = rows[rows["moment"] == top["moment"].iloc[0]]["bytes"].sum()
    peak = top[["ms", "end"]].rename(columns={"end": "start"}).assign(text=memory(total))
    side, shift = ("right", -3) if top["ms"].iloc[0] > rows["ms"].max() / 2 else ("left", 3)  # where there is room
    text = alt.Chart(peak).mark_text(align=side, dx=shift, dy=-6, fontSize=SMALL)
    return text.encode(x="ms:Q", y="start:Q", text="text:N")


def run_to_draw(peaks: pd.DataFrame) -> str | None:
    """The run with the highest peak among those with activations at their peak, else among all; None without runs."""
    if peaks.empty:
        return None
    training = peaks[(peaks["category"] == "activations") & (peaks["bytes"] > 0)]
    chosen = peaks[peaks["run"].isin(training["run"])] if len(training) else peaks
    return str(chosen.loc[chosen["peak_bytes"].idxmax(), "run"])


def _category_rows(moments: pd.DataFrame, unit: int) -> pd.DataFrame:
    """One row per moment and category that ever has bytes, from `start` to `end` in this unit."""
    columns = [name for name in moments if name.endswith("_bytes") and name != "live_bytes"]
    names = {name: name.removesuffix("_bytes").replace("_", " ") for name in columns}
    rows = moments.astype({"phase": "str"}).melt([*LEADING, "moment", "ms", "phase"], columns, "category", "bytes")
    rows = rows.assign(category=rows["category"].map(names), live=rows["bytes"] / unit, size=rows["bytes"].map(memory))
    rows = marks.stacked(rows, "live", "category", stack="moment")
    return rows[rows.groupby("category")["bytes"].transform("max") > 0].drop(columns="mode")


def result_timeline(tables: Tables) -> str:
    """The phase of the peak, and its bytes."""
    peaks = tables["memory_peak"]
    row = peaks[peaks["run"] == run_to_draw(peaks)].iloc[0]
    return f"Memory in use is highest in {row['fullest_phase']}: {memory(row['peak_bytes'])}"


FIGURES = (
    Figure(
        "memory_categories", "Memory at the peak of a step, by category",
        draw_categories, result_categories, tables=("runs", "memory_peak"),
    ),
    Figure(
        "memory_timeline", "Memory during the step with the highest peak, by category",
        draw_timeline, result_timeline, tables=("runs", "memory_peak", "memory_timeline"),
    ),
)  # fmt: skip
