"""Figure of (h): time of a step against context length, a line per attention, and where memory runs out."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import AXIS_PX, Frame
from profile_grid.figures.run_selection import without_figures
from profile_grid.figures.scales import Contexts, Series
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import significant
from profile_grid.study.dimensions import ATTENTION, CONTEXT_LENGTH, MODE
from profile_grid.study.stages import TIMING
from profile_grid.tables.evidence import FASTER
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.pivoting import sorted_values
from profile_grid.tables.ratios import compared

PANEL_DIMENSIONS = (CONTEXT_LENGTH.key, ATTENTION.key)
COLUMNS = 2
SIZE = (WIDTH // COLUMNS - AXIS_PX, 210)
TIME = ("mean_ms", "std_ms")
NO_TIMES = "No two timed runs differ only in attention."


def draw_attention_times(tables: Tables) -> Drawing:
    """A panel per mode: time of a step against context length, both logarithmic, a line per attention."""
    runs, times = tables["runs"], tables["attention_times"]
    steps = times[(times["phase"] == WHOLE_STEP) & times["mean_ms"].notna()]
    missing = without_figures(compared(runs, ATTENTION), TIMING)
    series = Series(ATTENTION.key, tuple(sorted_values(times, ATTENTION.key)))
    contexts = Contexts.of(times["context_length"])

    def panel(rows: pd.DataFrame, absent: pd.DataFrame) -> alt.LayerChart:
        tooltip = marks.tooltip(
            rows, ("mean_ms", "time (ms)", marks.DIGITS), ("std_ms", "± (ms)", marks.DIGITS),
            ("speed_up", "times as fast as eager", marks.DIGITS),
        )  # fmt: skip
        return marks.against_context(rows, absent, contexts, "time of a step (ms)", series, TIME, tooltip, SIZE)

    note = "Times without a profiler, ± the standard deviation between steps. eager: separate operations."
    return Frame(PANEL_DIMENSIONS, NO_TIMES, COLUMNS).drawing(steps, runs, missing, panel, (note,))


def result_attention_times(tables: Tables) -> str:
    """The fastest attention at the longest context, of the configuration that gains most there."""
    times = tables["attention_times"]
    steps = times[(times["phase"] == WHOLE_STEP) & (times["verdict"] == FASTER)]
    if steps.empty:
        return ""
    best = steps.loc[steps[steps["context_length"] == steps["context_length"].max()]["speed_up"].idxmax()]
    name = ", ".join(MODE.name_of(best[key]) if key == MODE.key else str(best[key]) for key in ("model", "mode"))
    factor = significant(best["speed_up"])
    return f"At context {best['context_length']} {best[ATTENTION.key]} is {factor} times as fast as eager ({name})"


FIGURES = (
    Figure(
        "attention_times", "Time of a step against context length, by attention", draw_attention_times,
        result_attention_times, tables=("runs", "attention_times"),
    ),
)  # fmt: skip
