"""Figure of (j): time of a step against memory, a point for each number of checkpointed blocks."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import AXIS_PX, Frame
from profile_grid.figures.run_selection import without_figures
from profile_grid.figures.scales import Series
from profile_grid.figures.theme import SOFT, WIDTH
from profile_grid.quantities import GIBIBYTE, interval, percent, ratio
from profile_grid.study.dimensions import CHECKPOINT
from profile_grid.study.stages import TIMING
from profile_grid.tables.evidence import SLOWER
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.pivoting import sorted_values
from profile_grid.tables.ratios import compared

COLUMNS, HEIGHT_PX, VALUE = 3, 170, "blocks"
NO_TIMES = "No two timed training runs differ only in checkpoints."
TITLES = {  # the first that any run has
    "peak_allocated_bytes": "peak memory (GiB)",
    "recorded_peak_bytes": "recorded peak memory (GiB)",
    "kept_bytes": "activations kept, predicted (GiB)",
}


def time_and_memory(taken: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """One row per timed run with its memory in GiB, and the column of that: the measured peak of tensors, else the
    recorded peak, else the bytes kept according to the shapes."""
    source = next((name for name in TITLES if taken[name].notna().any()), list(TITLES)[-1])
    rows = taken.assign(gib=taken[source] / GIBIBYTE, **{VALUE: taken[CHECKPOINT.key].map(CHECKPOINT.name_of)})
    return rows[rows["mean_ms"].notna() & rows["gib"].notna()], source


def draw_checkpoint(tables: Tables) -> Drawing:
    """A panel per configuration: time of a step against memory, points joined from no checkpoint to every block."""
    runs, taken = tables["runs"], tables["checkpoint_memory"]
    rows, source = time_and_memory(taken)
    values = sorted_values(taken, CHECKPOINT.key)
    rows = rows.assign(order=rows[CHECKPOINT.key].map(lambda value: 1 / value if value else 0))
    series = Series(VALUE, tuple(CHECKPOINT.name_of(value) for value in values))
    note = (
        "Times without a profiler, ± the standard deviation between steps. Checkpointed blocks are recomputed in the"
        " backward pass. Of two points at the same memory, the upper one only costs time. Neither axis begins at 0."
    )
    missing = without_figures(compared(runs, CHECKPOINT), TIMING)
    return Frame((CHECKPOINT.key,), NO_TIMES, COLUMNS).drawing(
        rows, runs, missing, lambda data, _: _panel(data, series, TITLES[source]), (note,)
    )


def _panel(rows: pd.DataFrame, series: Series, title: str) -> alt.LayerChart:
    ends = marks.with_ends(rows, "mean_ms", "std_ms", "mean")
    scale = alt.Scale(zero=False, padding=14)
    x = alt.X("gib:Q", scale=scale, axis=alt.Axis(title=title, tickCount=5))
    low, middle = (
        alt.Y(f"{name}:Q", scale=scale, axis=alt.Axis(title="time of a step (ms)", tickCount=5))
        for name in ("mean_low", "mean_ms")
    )
    base = alt.Chart(ends).encode(x=x)
    tooltip = marks.tooltip(
        ends, ("gib", title, marks.DIGITS), ("mean_ms", "time (ms)", marks.DIGITS), ("std_ms", "± (ms)", marks.DIGITS)
    )
    return alt.layer(
        base.mark_line(color=SOFT).encode(y=middle, order="order:Q"),
        base.mark_rule().encode(y=low, y2="mean_high", color=series.color()),
        base.mark_point(filled=True).encode(y=middle, color=series.color(), shape=series.shape(), tooltip=tooltip),
        width=WIDTH // COLUMNS - AXIS_PX, height=HEIGHT_PX,
    )  # fmt: skip


def result_checkpoint(tables: Tables) -> str:
    """How much longer a step takes with the most checkpointed blocks, and its memory as a share."""
    rows, _ = time_and_memory(tables["checkpoint_memory"])
    times = tables["checkpoint_times"]
    steps = times[(times["phase"] == WHOLE_STEP) & (times["verdict"] == SLOWER)]
    if steps.empty:
        return ""
    most = next(value for value in sorted_values(steps, CHECKPOINT.key) if value)
    most_steps, memory = steps[steps[CHECKPOINT.key] == most], rows.set_index("run")["gib"]
    shares = (most_steps["run"].map(memory) / most_steps["base_run"].map(memory)).dropna()
    taken = f", in {interval(shares, percent)} of the memory" if len(shares) else ""
    name, longer = CHECKPOINT.name_of(most), interval(1 / most_steps["speed_up"], ratio)
    return f"With {name} checkpointed, a step takes {longer} as long{taken}"


FIGURES = (
    Figure(
        "checkpoint", "Time of a step against memory, by checkpointed blocks", draw_checkpoint, result_checkpoint,
        tables=("runs", "checkpoint_times", "checkpoint_memory"),
    ),
)  # fmt: skip
