"""Figures of (i): live bytes by category at the peak of each step, and in the course of one step."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.panels import AXIS_PX, Drawing, Figure, Frame, Tables, bars_of_runs
from profile_grid.figures.run_selection import labels, runs_without_results, sorted_by_size
from profile_grid.figures.theme import SMALL, SOFT, WIDTH
from profile_grid.quantities import GIBIBYTE, MEBIBYTE, memory, percent
from profile_grid.questions.i_memory.table import largest_category_of_highest_peak
from profile_grid.stages.memory.usage_tables import CATEGORY_COLUMNS
from profile_grid.study.dimensions import KEYS, LEADING
from profile_grid.study.stages import MEMORY
from profile_grid.tables.names import OUTSIDE

NOT_RECORDED = "No run whose allocations were to be recorded has a complete history."


def unit_of(largest_bytes: float) -> tuple[int, str]:
    """(bytes, name) of the unit of an axis with sizes up to this one."""
    return (GIBIBYTE, "GiB") if largest_bytes >= GIBIBYTE else (MEBIBYTE, "MiB")


def draw_categories(tables: Tables) -> Drawing:
    """One bar per run, in the order of models, contexts and modes, with its peak as text at the end."""
    runs, peaks = tables["runs"], sorted_by_size(tables["memory_peak"], tables["runs"])
    unit_bytes, unit_name = unit_of(max(peaks["peak_bytes"], default=0))
    texts = [f"{memory(row.peak_bytes)}, in {row.fullest_phase}" for row in peaks.itertuples()]
    live = peaks["bytes"] / unit_bytes
    parts = peaks.assign(size=peaks["bytes"].map(memory), live=live, bar=labels(peaks), text=texts)
    return bars_of_runs(
        marks.stacked(parts[parts["bytes"] > 0], "live", "category"),
        list(dict.fromkeys(parts["bar"])), color_column="category",
        axis_title=f"in use at the peak of a step ({unit_name})",
        tooltip=(("category", "category"), ("size", "in use"), ("share", "share", marks.SHARE)),
        runs=runs, missing=runs_without_results(runs, MEMORY), reason=NOT_RECORDED,
    )  # fmt: skip


def result_categories(tables: Tables) -> str:
    """The highest peak and its largest category."""
    row = largest_category_of_highest_peak(tables["memory_peak"])
    size, share = memory(row["peak_bytes"]), percent(row["share"])
    return f"The highest peak is {size}; {share} of it is {row['category']}"


HEIGHT_PX = 260
# The names of phases alternate between two lines. In heights of the areas: of the lower line, and between both.
NAMES_HEIGHT, LINE_HEIGHT = 1.1, 0.06
MIN_PHASE_SHARE = 0.01  # of the step: a shorter phase has no room for its name


def draw_timeline(tables: Tables) -> Drawing:
    """The memory of one run, `run_to_draw`, as stacked areas with the names of the phases above."""
    run, timeline = run_to_draw(tables["memory_peak"]), tables["memory_timeline"]
    moments = timeline[timeline["run"] == run].sort_values("moment", kind="stable")
    unit_bytes, unit_name = unit_of(max(moments["live_bytes"], default=0))
    rows = _category_rows(moments, unit_bytes)

    def panel(areas: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
        layers = (_areas(areas, unit_name), *_phase_marks(moments, areas["end"].max()), _peak_label(areas))
        return alt.layer(*layers, width=WIDTH - AXIS_PX, height=HEIGHT_PX)

    runs, slices = tables["runs"], moments["moment"].nunique()
    notes = [
        f"{name}, last measured step, in {slices} slices of its allocations, each drawn at its peak."
        for name in labels(moments.head(1))
    ]
    return Frame(KEYS, NOT_RECORDED).drawing(rows, runs, runs_without_results(runs, MEMORY), panel, notes)


def _areas(rows: pd.DataFrame, unit_name: str) -> alt.Chart:
    """The stacked areas of the categories; a value lasts until the next moment."""
    time_axis = alt.Axis(title="time on the host since the step began (ms)", grid=False, labelFlush=False)
    x = alt.X("ms:Q", scale=alt.Scale(nice=False, zero=False), axis=time_axis)
    tooltip = marks.tooltip(
        rows, ("category", "category"), ("size", "in use"), ("phase", "phase"), ("ms", "after (ms)", marks.DIGITS)
    )
    y = alt.Y("start:Q", axis=alt.Axis(title=f"in use ({unit_name})"))
    areas = alt.Chart(rows).mark_area(interpolate="step-after", opacity=1)
    return areas.encode(x=x, y=y, y2="end", fill=marks.part_fills(rows, "category", lined=False), tooltip=tooltip)


def _phase_marks(moments: pd.DataFrame, peak: float) -> tuple[alt.Chart, alt.Chart]:
    """For each phase that is not too short: a vertical line at its beginning, and its name above all areas. As for all
    marks of this chart, the column `start` holds the height."""
    names, step_ms = moments["phase"].astype("str"), moments["ms"].max()
    begins = names.ne(names.shift())
    phases = moments.assign(phase=names)[begins & (names != OUTSIDE)]
    durations_ms = phases["ms"].shift(-1, fill_value=step_ms) - phases["ms"]
    phases = phases[durations_ms >= MIN_PHASE_SHARE * step_ms]
    phases = phases.assign(start=[peak * (NAMES_HEIGHT + LINE_HEIGHT * (n % 2)) for n in range(len(phases))])
    base = alt.Chart(phases[["ms", "phase", "start"]]).encode(x="ms:Q")
    texts = base.mark_text(align="left", baseline="top", dx=3, fontSize=SMALL)
    return base.mark_rule(color=SOFT, strokeDash=[2, 2]), texts.encode(y="start:Q", text="phase:N")


def _peak_label(rows: pd.DataFrame) -> alt.Chart:
    """A label with the live bytes at the peak, on the side with more room."""
    highest = rows.loc[[rows["end"].idxmax()]]
    total = rows[rows["moment"] == highest["moment"].iloc[0]]["bytes"].sum()
    label = highest[["ms", "end"]].rename(columns={"end": "start"}).assign(text=memory(total))
    align, shift_px = ("right", -3) if highest["ms"].iloc[0] > rows["ms"].max() / 2 else ("left", 3)
    text = alt.Chart(label).mark_text(align=align, dx=shift_px, dy=-6, fontSize=SMALL)
    return text.encode(x="ms:Q", y="start:Q", text="text:N")


def run_to_draw(peaks: pd.DataFrame) -> str | None:
    """The run with the highest peak, if possible one that has activations at its peak; None without runs."""
    if peaks.empty:
        return None
    with_activations = peaks[(peaks["category"] == "activations") & (peaks["bytes"] > 0)]
    candidates = peaks[peaks["run"].isin(with_activations["run"])] if len(with_activations) else peaks
    return str(candidates.loc[candidates["peak_bytes"].idxmax(), "run"])


def _category_rows(moments: pd.DataFrame, unit_bytes: int) -> pd.DataFrame:
    """One row per moment and category, without the categories that never have bytes. Its area goes from `start` to
    `end`, in units of `unit_bytes`."""
    categories = {column: str(name) for name, column in CATEGORY_COLUMNS.items() if column in moments}
    keys = [*LEADING, "moment", "ms", "phase"]
    rows = moments.astype({"phase": "str"}).melt(keys, list(categories), "category", "bytes")
    live, size = rows["bytes"] / unit_bytes, rows["bytes"].map(memory)
    rows = rows.assign(category=rows["category"].map(categories), live=live, size=size)
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
