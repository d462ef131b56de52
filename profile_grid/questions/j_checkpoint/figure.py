"""Figures of (j): the peak by blocks per checkpoint, and time of a step against memory."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks, run_selection
from profile_grid.figures.panels import AXIS_PX, Drawing, Figure, Frame, Tables
from profile_grid.figures.theme import SOFT, WIDTH, Series
from profile_grid.quantities import GIBIBYTE, interval, memory, percent, significant
from profile_grid.questions.j_checkpoint.table import first_known_column
from profile_grid.study.dimensions import CHECKPOINT, keys_without
from profile_grid.study.stages import TIMING
from profile_grid.tables import evidence, pivoting, ratios, wording
from profile_grid.tables.gains import whole_steps

PANELS_PER_LINE, HEIGHT_PX = 2, 170
WIDTH_PX = WIDTH // PANELS_PER_LINE - AXIS_PX
NO_TIMES = "No two training runs with times and memory differ only in checkpoints."
NO_PEAK = "No peak was measured or recorded of training runs that differ only in checkpoints."
BLOCKS = "blocks"  # the column with the value of `checkpoint` in words
MEMORY_TITLES = {  # titles of the axis by column; the first column in which any run has a value is drawn
    "peak_allocated_bytes": "peak memory (GiB)",
    "recorded_peak_bytes": "recorded peak memory (GiB)",
}


def time_and_memory(memory_rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """(one row per timed run with its memory `gib` and its BLOCKS, the title of the axis of `gib`)."""
    column = first_known_column(memory_rows)
    blocks = memory_rows[CHECKPOINT.key].map(CHECKPOINT.name_of)
    rows = memory_rows.assign(gib=memory_rows[column] / GIBIBYTE, **{BLOCKS: blocks})
    return rows[rows["mean_ms"].notna() & rows["gib"].notna()], MEMORY_TITLES[column]


def draw_checkpoint(tables: Tables) -> Drawing:
    """A panel per configuration: time of a step against memory. A line joins the points in the order of their blocks,
    except those of nested checkpoints, such as 8-2."""
    runs, memory_rows = tables["runs"], tables["checkpoint_memory"]
    rows, memory_title = time_and_memory(memory_rows)
    values = pivoting.sorted_values(memory_rows, CHECKPOINT.key)
    rows = rows.assign(order=rows[CHECKPOINT.key].map(values.index), nested=rows[CHECKPOINT.key].str.contains("-"))
    series = Series(BLOCKS, tuple(CHECKPOINT.name_of(value) for value in values if value in set(rows[CHECKPOINT.key])))
    note = (
        "Times without a profiler, ± the standard deviation between steps. Blocks that share a checkpoint are"
        " recomputed in the backward pass. Of two points at the same memory, the upper one only costs time. Neither"
        " axis begins at 0."
    )
    missing = run_selection.runs_without_results(ratios.with_counterparts(runs, CHECKPOINT), TIMING)
    return Frame((CHECKPOINT.key,), NO_TIMES, PANELS_PER_LINE).drawing(
        rows, runs, missing, lambda data, _: _panel(data, series, memory_title), (note,)
    )


def _panel(rows: pd.DataFrame, series: Series, memory_title: str) -> alt.LayerChart:
    ends = marks.with_ends(rows, "mean_ms", "std_ms", "mean")
    scale = alt.Scale(zero=False, padding=14)
    x = alt.X("gib:Q", scale=scale, axis=alt.Axis(title=memory_title, tickCount=5))
    low, middle = (
        alt.Y(f"{name}:Q", scale=scale, axis=alt.Axis(title="time of a step (ms)", tickCount=5))
        for name in ("mean_low", "mean_ms")
    )
    base = alt.Chart(ends).encode(x=x)
    tooltip = marks.tooltip(
        ends, ("gib", memory_title, marks.DIGITS), ("mean_ms", "time (ms)", marks.DIGITS),
        ("std_ms", "± (ms)", marks.DIGITS),
    )  # fmt: skip
    return alt.layer(
        base.transform_filter(~alt.datum.nested).mark_line(color=SOFT).encode(y=middle, order="order:Q"),
        base.mark_rule().encode(y=low, y2="mean_high", color=series.color()),
        base.mark_point(filled=True).encode(y=middle, color=series.color(), shape=series.shape(), tooltip=tooltip),
        width=WIDTH_PX, height=HEIGHT_PX,
    )  # fmt: skip


def result_checkpoint(tables: Tables) -> str:
    """How much longer a step takes, and with how much memory, with the fewest blocks that make any step slower."""
    rows, _ = time_and_memory(tables["checkpoint_memory"])
    steps = whole_steps(tables["checkpoint_times"])
    slower = steps[steps["verdict"] == evidence.SLOWER]
    if slower.empty:
        return ""
    fewest = pivoting.sorted_values(slower, CHECKPOINT.key)[0]
    slower, gib = slower[slower[CHECKPOINT.key] == fewest], rows.set_index("run")["gib"]
    shares = (slower["run"].map(gib) / slower["base_run"].map(gib)).dropna()
    memory_text = f", in {interval(shares, percent)} of the memory" if len(shares) else ""
    longer = interval(1 / slower["speed_up"], significant)
    return f"{wording.capital(CHECKPOINT.words(fewest))}, a step takes {longer} times as long{memory_text}"


def draw_peak(tables: Tables) -> Drawing:
    """A panel per configuration: the peak of a step by blocks per checkpoint."""
    runs, memory_rows = tables["runs"], tables["checkpoint_memory"]
    values = pivoting.sorted_values(memory_rows, CHECKPOINT.key)
    peaks = memory_rows.assign(gib=memory_rows[first_known_column(memory_rows)] / GIBIBYTE).dropna(subset=["gib"])
    axis = alt.Axis(title="blocks that share a checkpoint; 0: no checkpoints", labelAngle=0)
    x = alt.X(f"{CHECKPOINT.key}:N", sort=values, axis=axis)
    peak_axis = alt.Axis(title="peak of a step (GiB)", tickCount=5)

    def panel(data: pd.DataFrame, _: pd.DataFrame) -> alt.Chart:
        tooltip = marks.tooltip(data, ("gib", "GiB", marks.DIGITS))
        y = alt.Y("gib:Q", scale=alt.Scale(domain=[0, 1.08 * data["gib"].max()], nice=False), axis=peak_axis)
        points = alt.Chart(data, width=WIDTH_PX, height=HEIGHT_PX).mark_point(filled=True)
        return points.encode(x=x, y=y, tooltip=tooltip)

    note = "8-2: 8 blocks share a checkpoint, and every 2 of them again while these are recomputed."
    missing = run_selection.runs_without_results(ratios.with_counterparts(runs, CHECKPOINT), TIMING)
    return Frame((CHECKPOINT.key,), NO_PEAK, PANELS_PER_LINE).drawing(peaks, runs, missing, panel, (note,))


def result_peak(tables: Tables) -> str:
    """The blocks per checkpoint with the lowest peak, in the configuration that has the highest peak of all."""
    memory_rows, keys = tables["checkpoint_memory"], keys_without(CHECKPOINT.key)
    column = first_known_column(memory_rows)
    rows = memory_rows[memory_rows[column].notna()]
    highest = rows.loc[rows[column].idxmax()]
    configuration_rows = rows[(rows[keys] == highest[keys]).all(axis=1)]
    lowest = configuration_rows.loc[configuration_rows[column].idxmin()]
    blocks = CHECKPOINT.name_of(lowest[CHECKPOINT.key])
    in_words = wording.run_in_words if memory_rows["mode"].nunique() > 1 else wording.config_in_words
    configuration = in_words({**lowest, CHECKPOINT.key: CHECKPOINT.default})
    return f"The lowest peak of {configuration}: {memory(lowest[column])}, with {blocks} per checkpoint"


FIGURES = (
    Figure(
        "checkpoint", "Time of a step against memory, by blocks per checkpoint", draw_checkpoint, result_checkpoint,
        tables=("runs", "checkpoint_times", "checkpoint_memory"),
    ),
    Figure(
        "checkpoint_peak", "Peak of a step, by blocks per checkpoint", draw_peak, result_peak,
        tables=("runs", "checkpoint_memory"),
    ),
)  # fmt: skip
