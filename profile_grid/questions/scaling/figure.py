"""Figure of scaling: the time of a step against parameters and against context length."""

import math
from dataclasses import replace
from functools import partial

import altair as alt
import pandas as pd

from profile_grid.figures import marks, run_selection
from profile_grid.figures.panels import AXIS_PX, GAP_PX, Drawing, Figure, Frame, Spec, Tables, column, row
from profile_grid.figures.theme import NUMBER, WIDTH, ContextAxis, LogAxis, Series
from profile_grid.quantities import interval, significant
from profile_grid.study.dimensions import CONTEXT_LENGTH, FULLEST_FIRST, MODEL, MODES, keys_without
from profile_grid.study.stages import TIMING
from profile_grid.tables.gains import LEADING_KEYS, whole_steps

PARAMETERS, CONTEXT = "parameters", CONTEXT_LENGTH.key  # the two columns with a size, of the model and of the input
VARYING_ON_LINE = {PARAMETERS: MODEL.key, CONTEXT: CONTEXT_LENGTH.key}  # by size, the dimension that varies on a line
SIZE_WORDS = {PARAMETERS: "parameters", CONTEXT: "context"}
WIDTH_PX, HEIGHT_PX = WIDTH // 2 - AXIS_PX, 180
MEAN_AND_STD = ("mean_ms", "std_ms")


def step_times(runs: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """One row per timed run: mean_ms and std_ms of a step without a profiler, and its parameters."""
    timed = whole_steps(timings[timings["mean_ms"].notna()])
    table = timed[["run", "mean_ms", "std_ms"]].merge(runs[["run", "parameters"]], on="run", validate="one_to_one")
    table["parameters"] = pd.to_numeric(table["parameters"], errors="coerce").astype("float64")
    return run_selection.with_dimensions(table, runs)


def growth(times: pd.DataFrame, size: str) -> list[float]:
    """By line with two sizes or more: how much longer a step takes if the size doubles, by the two largest sizes."""
    factors, keys = [], keys_without(VARYING_ON_LINE[size])
    for _, line_times in times.dropna(subset=size).groupby(keys, sort=False, dropna=False):
        largest = line_times.drop_duplicates(size).nlargest(2, size)
        if len(largest) == 2:
            size_ratio, time_ratio = largest[[size, "mean_ms"]].iloc[0] / largest[[size, "mean_ms"]].iloc[1]
            factors.append(time_ratio ** (math.log(2) / math.log(size_ratio)))
    return factors


def draw_scaling(tables: Tables) -> Drawing:
    """A row of panels per mode: the time of a step against parameters, with a line per context, and against context,
    with a line per model. A size that is the same in all runs has no panel."""
    runs = tables["runs"]
    times = step_times(runs, tables["timings"])
    missing = run_selection.runs_without_results(runs, TIMING)
    lengths = sorted({*times[CONTEXT], *missing[CONTEXT]})  # also of runs without results, which have marks
    series_by_size = {
        PARAMETERS: Series("line", tuple(f"context {length}" for length in lengths)),
        CONTEXT: Series("model", tuple(run_selection.models_in_order(runs))),
    }
    times = times.assign(line=times[CONTEXT].map("context {}".format))
    sizes = [size for size in (PARAMETERS, CONTEXT) if times[size].nunique() > 1] or [PARAMETERS, CONTEXT]

    def panel(rows: pd.DataFrame, absent: pd.DataFrame) -> Spec:
        modes, mode_rows = [mode for mode in MODES if mode in set(rows["mode"])], []
        for mode in modes:
            mode_series = {
                size: replace(series, in_legend=(mode == modes[-1]), width_px=WIDTH_PX)
                for size, series in series_by_size.items()
            }
            panels = _panels(rows[rows["mode"] == mode], absent[absent["mode"] == mode], mode_series, sizes)
            panels[0] = panels[0].properties(title=alt.TitleParams(MODES[mode], frame="group"))
            independent = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
            mode_rows.append(row(*panels, spacing=GAP_PX, resolve=independent))
        return column(*mode_rows, spacing=18)

    note = "Without a profiler, mean ± standard deviation of the steps."
    return Frame(LEADING_KEYS, "No run was timed to its end.").drawing(times, runs, missing, panel, (note,))


def _panels(
    times: pd.DataFrame, missing: pd.DataFrame, series: dict[str, Series], sizes: list[str]
) -> list[alt.LayerChart]:
    """A panel per size, with the times of one mode. That of the context also has marks for the runs without results."""
    sized = times.dropna(subset=PARAMETERS)
    parameters = LogAxis.around(sized[PARAMETERS], WIDTH_PX)
    contexts = ContextAxis.of([*times[CONTEXT], *missing[CONTEXT]])
    y = marks.log_axis(times, *MEAN_AND_STD, HEIGHT_PX).with_room(below_px=marks.missing_marks_px(missing))
    tooltip = marks.tooltip(
        times, ("parameters", "parameters", ".4~s"), ("mean_ms", "step (ms)", marks.DIGITS),
        ("std_ms", "± (ms)", marks.DIGITS),
    )  # fmt: skip
    axis = alt.Axis(title="parameters", values=parameters.ticks, labelExpr=f"replace({NUMBER}, 'G', 'B')")  # billions
    x_channels = {PARAMETERS: alt.X("parameters:Q", scale=parameters.scale, axis=axis), CONTEXT: contexts.x()}
    panels = []
    for size in sizes:
        rows = sized if size == PARAMETERS else times
        title = None if panels else "time of a step (ms)"  # of the y axis, at the first panel only
        layers = marks.means_with_spread(rows, x_channels[size], y, title, series[size], *MEAN_AND_STD, tooltip)
        if size == CONTEXT:
            layers += marks.missing_marks(missing, contexts, y, series[CONTEXT])
        panels.append(alt.layer(*layers, width=WIDTH_PX, height=HEIGHT_PX))
    return panels


def result_scaling(tables: Tables) -> str:
    """How the time of a step of the mode with the most phases grows at its largest sizes."""
    times = step_times(tables["runs"], tables["timings"])
    mode = next((mode for mode in FULLEST_FIRST if mode in set(times["mode"])), None)
    mode_times = times[times["mode"] == mode]
    parts = [
        f"twice the {words} takes {interval(factors, partial(significant, digits=2))} times as long"
        for size, words in SIZE_WORDS.items()
        if (factors := growth(mode_times, size))
    ]
    return f"At the largest sizes, a {MODES[mode]} with {', with '.join(parts)}" if parts else ""


FIGURES = (
    Figure(
        "scaling", "Time of a step against parameters and against context length", draw_scaling, result_scaling,
        tables=("runs", "timings"),
    ),
)  # fmt: skip
