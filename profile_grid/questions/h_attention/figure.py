"""Figure of (h): time of a step against context length, a line per attention, and where memory runs out."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks, panels, run_selection, theme
from profile_grid.quantities import significant
from profile_grid.study.dimensions import ATTENTION, CONTEXT_LENGTH, MODE
from profile_grid.study.stages import TIMING
from profile_grid.tables import evidence, gains, pivoting, ratios

SHOWN_IN_PANEL = (CONTEXT_LENGTH.key, ATTENTION.key)  # the x axis; the lines
PANELS_PER_LINE = 2
PANEL_PX = (theme.WIDTH // PANELS_PER_LINE - panels.AXIS_PX, 210)  # width and height
MEAN_AND_STD = ("mean_ms", "std_ms")
NO_TIMES = "No two timed runs differ only in attention."


def draw_attention_times(tables: panels.Tables) -> panels.Drawing:
    """A panel per model, mode and further dimension that varies: time of a step against context length, both
    logarithmic, a line per attention."""
    runs, times = tables["runs"], tables["attention_times"]
    steps = gains.whole_steps(times[times["mean_ms"].notna()])
    missing = run_selection.runs_without_results(ratios.with_counterparts(runs, ATTENTION), TIMING)
    series = theme.Series(ATTENTION.key, tuple(pivoting.sorted_values(times, ATTENTION.key)))
    contexts = theme.ContextAxis.of(times["context_length"])

    def panel(panel_steps: pd.DataFrame, panel_missing: pd.DataFrame) -> alt.LayerChart:
        tooltip = marks.tooltip(
            panel_steps, ("mean_ms", "time (ms)", marks.DIGITS), ("std_ms", "± (ms)", marks.DIGITS),
            ("speed_up", "times as fast as eager", marks.DIGITS),
        )  # fmt: skip
        return marks.against_context(
            panel_steps, panel_missing, contexts, "time of a step (ms)", series, MEAN_AND_STD, tooltip, PANEL_PX
        )

    note = "Times without a profiler, ± the standard deviation between steps. eager: separate operations."
    return panels.Frame(SHOWN_IN_PANEL, NO_TIMES, columns=PANELS_PER_LINE).drawing(steps, runs, missing, panel, (note,))


def result_attention_times(tables: panels.Tables) -> str:
    """The attention with the largest speed-up at the longest context where any is clearly faster than eager."""
    times = tables["attention_times"]
    steps = gains.whole_steps(times[times["verdict"] == evidence.FASTER])
    if steps.empty:
        return ""
    longest = steps[steps["context_length"] == steps["context_length"].max()]
    best = longest.loc[longest["speed_up"].idxmax()]
    step, factor = f"{best['model']}, {MODE.name_of(best['mode'])}", significant(best["speed_up"])
    return f"At context {best['context_length']} {best[ATTENTION.key]} is {factor} times as fast as eager ({step})"


FIGURES = (
    panels.Figure(
        "attention_times", "Time of a step against context length, by attention", draw_attention_times,
        result_attention_times, tables=("runs", "attention_times"),
    ),
)  # fmt: skip
