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

WIDTH_PX, HEIGHT_PX = WIDTH // 2 - AXIS_PX, 180
MEAN_AND_STD = ("mean_ms", "std_ms")
AGAINST = {"parameters": MODEL.key, "context_length": CONTEXT_LENGTH.key}  # a line varies only in this dimension
WORDS = {"parameters": "parameters", "context_length": "context"}


def step_times(runs: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """One row per timed run: mean_ms and std_ms of a step without a profiler, and its parameters."""
    timed = whole_steps(timings[timings["mean_ms"].notna()])
    table = timed[["run", "mean_ms", "std_ms"]].merge(runs[["run", "parameters"]], on="run", validate="one_to_one")
    table["parameters"] = pd.to_numeric(table["parameters"], errors="coerce").astype("float64")
    return run_selection.with_dimensions(table, runs)


def growth(times: pd.DataFrame, against: str) -> list[float]:
    """By what factor a step takes longer if the size doubles, of each line with two sizes, between its two largest."""
    factors = []
    for _, line in times.dropna(subset=against).groupby(keys_without(AGAINST[against]), sort=False, dropna=False):
        sizes = line.drop_duplicates(against).nlargest(2, against)
        if len(sizes) == 2:
            (more, longer), (less, shorter) = sizes[[against, "mean_ms"]].to_numpy()
            factors.append((longer / shorter) ** (math.log(2) / math.log(more / less)))
    return factors


def draw_scaling(tables: Tables) -> Drawing:
    """A row per mode: the time of a step against parameters (a line per context) and context (a line per model); only
    against one of them, if the other is the same in all runs."""
    runs = tables["runs"]
    times = step_times(runs, tables["timings"])
    missing = run_selection.runs_without_results(runs, TIMING)
    models = Series("model", tuple(run_selection.models_in_order(runs)))
    lengths = sorted({*times["context_length"], *missing["context_length"]})
    lines = Series("line", tuple(f"context {length}" for length in lengths))
    times = times.assign(line=times["context_length"].map("context {}".format))
    varied = [against for against in AGAINST if times[against].nunique() > 1] or [*AGAINST]

    def panel(rows: pd.DataFrame, absent: pd.DataFrame) -> Spec:
        present = [mode for mode in MODES if mode in set(rows["mode"])]
        panels = []
        for mode in present:
            is_last = mode == present[-1]
            mode_series = (replace(series, in_legend=is_last, width_px=WIDTH_PX) for series in (lines, models))
            mode_tables = (table[table["mode"] == mode] for table in (rows, absent))
            panels.append(_panels(*mode_tables, *mode_series, MODES[mode], varied))
        return column(*panels, spacing=18)

    note = "Without a profiler, mean ± standard deviation of the steps."
    return Frame(LEADING_KEYS, "No run was timed to its end.").drawing(times, runs, missing, panel, (note,))


def _panels(
    times: pd.DataFrame, missing: pd.DataFrame, lines: Series, models: Series, mode: str, varied: list[str]
) -> Spec:  # fmt: skip
    """The times of one mode against parameters, and against context with the runs without results."""
    sized = times.dropna(subset="parameters")
    sizes = LogAxis.around(sized["parameters"], WIDTH_PX)
    contexts = ContextAxis.of([*times["context_length"], *missing["context_length"]])
    y = marks.log_axis(times, *MEAN_AND_STD, HEIGHT_PX).with_room(below_px=marks.missing_marks_px(missing))
    tooltip = marks.tooltip(
        times, ("parameters", "parameters", ".4~s"), ("mean_ms", "step (ms)", marks.DIGITS),
        ("std_ms", "± (ms)", marks.DIGITS),
    )  # fmt: skip
    axis = alt.Axis(title="parameters", values=sizes.ticks, labelExpr=f"replace({NUMBER}, 'G', 'B')")  # billions
    x = alt.X("parameters:Q", scale=sizes.scale, axis=axis)
    axes = ((sized, x, lines), (times, contexts.x(), models))
    titles = dict.fromkeys(varied[:1], "time of a step (ms)")
    layers = {
        against: marks.means_with_spread(rows, channel, y, titles.get(against), series, *MEAN_AND_STD, tooltip)
        for against, (rows, channel, series) in zip(AGAINST, axes, strict=True)
    }
    layers["context_length"] += marks.missing_marks(missing, contexts, y, models)
    drawn = [alt.layer(*layers[against], width=WIDTH_PX, height=HEIGHT_PX) for against in varied]
    drawn[0] = drawn[0].properties(title=alt.TitleParams(mode, frame="group"))
    independent = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
    return row(*drawn, spacing=GAP_PX, resolve=independent)


def result_scaling(tables: Tables) -> str:
    """How the time of the fullest mode grows at its largest sizes."""
    times = step_times(tables["runs"], tables["timings"])
    mode = next((mode for mode in FULLEST_FIRST if mode in set(times["mode"])), None)
    mode_times = times[times["mode"] == mode]
    parts = [
        f"twice the {WORDS[against]} takes {interval(factors, partial(significant, digits=2))} times as long"
        for against in AGAINST
        if (factors := growth(mode_times, against))
    ]
    return f"At the largest sizes, a {MODES[mode]} with {', with '.join(parts)}" if parts else ""


FIGURES = (
    Figure(
        "scaling", "Time of a step against parameters and against context length", draw_scaling, result_scaling,
        tables=("runs", "timings"),
    ),
)  # fmt: skip
