"""Figure of (j): time of a step against memory, a point for each number of checkpointed blocks."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import column, row
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.shown import without_figures
from profile_grid.figures.splitting import split
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import GIBIBYTE, interval, ratio
from profile_grid.study.dimensions import CHECKPOINT
from profile_grid.study.stages import TIMING
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.ratios import compared

COLUMNS, HEIGHT_PX, AXIS_PX, VALUE = 3, 170, 62, "blocks"
NO_TIMES = "No two timed training runs differ in checkpoints alone."
TITLES = {  # the first that any run tells
    "peak_allocated_bytes": "most memory (GiB)",
    "recorded_peak_bytes": "most memory, recorded (GiB)",
    "kept_bytes": "activations kept, by shapes (GiB)",
}


def time_and_memory(taken: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """One row per timed run with its memory in GiB, and the column that this is from: the most that tensors took
    while timed, or where no device told that, as recorded, or else what is kept by the shapes."""
    source = next((name for name in TITLES if taken[name].notna().any()), list(TITLES)[-1])
    rows = taken.assign(gib=taken[source] / GIBIBYTE, **{VALUE: taken[CHECKPOINT.key].map(CHECKPOINT.name_of)})
    return rows[rows["mean_ms"].notna() & rows["gib"].notna()], source


def draw_checkpoint(tables: Tables) -> Drawing:
    """A panel per configuration: time of a step against memory, a point per number of checkpointed blocks."""
    runs, taken = tables["runs"], tables["checkpoint_memory"]
    rows, source = time_and_memory(taken)
    missing = without_figures(compared(runs, CHECKPOINT), TIMING)
    if rows.empty:
        return Drawing(reason=NO_TIMES, notes=tuple(marks.missing_notes(missing)))
    names = tuple(CHECKPOINT.name_of(value) for value in sorted_values(taken, CHECKPOINT.key))
    groups, left_out = split(runs[runs["run"].isin(rows["run"])], (CHECKPOINT.key,))
    panels = [
        _panel(group.of(rows), Series(VALUE, names), TITLES[source]).properties(
            title=marks.panel_title(group.title or "training step"), width=WIDTH // COLUMNS - AXIS_PX, height=HEIGHT_PX
        )
        for group in groups
    ]
    lines = [row(*panels[first : first + COLUMNS], spacing=16) for first in range(0, len(panels), COLUMNS)]
    note = (
        "Times without a profiler, ± the standard deviation between steps. Blocks computed again in the backward pass."
    )
    return Drawing(column(*lines, spacing=18), (note, *left_out, *marks.missing_notes(missing)))


def _panel(rows: pd.DataFrame, series: Series, title: str) -> alt.LayerChart:
    own = marks.with_ends(rows, "mean_ms", "std_ms", "mean")
    x = Log.around(own["gib"], WIDTH // COLUMNS - AXIS_PX)
    y = Log.around(own[["mean_low", "mean_ms", "mean_high"]].to_numpy("float64").ravel(), HEIGHT_PX, margin=1.15)
    axis = y.axis("time of a step (ms)")
    base = alt.Chart(own).encode(x=alt.X("gib:Q", scale=x.scale, axis=x.axis(title)), color=series.color())
    low, middle = (alt.Y(f"{name}:Q", scale=y.scale, axis=axis) for name in ("mean_low", "mean_ms"))
    seen = marks.tooltip(
        own, ("gib", title, marks.DIGITS), ("mean_ms", "time (ms)", marks.DIGITS), ("std_ms", "± (ms)", marks.DIGITS)
    )
    return alt.layer(
        base.mark_rule().encode(y=low, y2="mean_high"),
        base.mark_point(filled=True).encode(y=middle, shape=series.shape(), tooltip=seen),
    )


def caption_checkpoint(tables: Tables) -> str:
    """How many times as long a step takes with each number of checkpointed blocks."""
    times = tables["checkpoint_times"]
    steps = times[times["phase"] == WHOLE_STEP]
    if steps.empty:
        return NO_TIMES
    told = [
        f"{interval(1 / steps[steps[CHECKPOINT.key] == value]['speed_up'], ratio)} {CHECKPOINT.words(value)}"
        for value in sorted_values(steps, CHECKPOINT.key)
    ]
    return f"Beside no checkpoints a step takes: {', '.join(told)}."


FIGURES = (
    Figure(
        "checkpoint", "Time against memory by checkpointed blocks", draw_checkpoint, caption_checkpoint,
        tables=("runs", "checkpoint_times", "checkpoint_memory"),
    ),
)  # fmt: skip
