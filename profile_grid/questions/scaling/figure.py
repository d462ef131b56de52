"""Figure of scaling: the time of a step against parameters and against context, with fitted power laws."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, column, row
from profile_grid.figures.scales import Contexts, Log, Series
from profile_grid.figures.shown import models_in_order, with_dimensions, without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import SMALLEST
from profile_grid.quantities import interval
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL, MODES, keys_without
from profile_grid.study.stages import TIMING
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.scaling import PowerLaw, fitted_power_law

SHOWN = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
WIDTH_PX, HEIGHT_PX, LAW_PX = 290, 160, 12
MOST_LAWS = 8  # whose exponents are written into one panel
Law = tuple[pd.DataFrame, PowerLaw | None]


@dataclass(frozen=True)
class Against:
    """What the time is drawn against: a column, and the dimension that alone differs between the points of a line."""

    column: str
    varied: str
    x: alt.X
    left: float
    series: Series


def step_times(runs: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """One row per run that was timed: mean_ms and std_ms of a step without a profiler, and its parameters."""
    timed = timings[(timings["phase"] == WHOLE_STEP) & timings["mean_ms"].notna()]
    table = timed[["run", "mean_ms", "std_ms"]].merge(runs[["run", "parameters"]], on="run", validate="one_to_one")
    table["parameters"] = pd.to_numeric(table["parameters"], errors="coerce").astype("float64")
    return with_dimensions(table, runs)


def laws(times: pd.DataFrame, x: str, varied: str) -> list[Law]:
    """The points that differ in the dimension `varied` alone, with the power law of their time against `x`."""
    lines = times.groupby(keys_without(varied), sort=False, dropna=False)
    ordered = [points.sort_values(x) for _, points in lines]
    return [(points, fitted_power_law(points[x], points["mean_ms"])) for points in ordered]


def draw_scaling(tables: Tables) -> Drawing:
    """Per mode a row: the time of a step against parameters (a line per context) and context (a line per model)."""
    runs = tables["runs"]
    times = step_times(runs, tables["timings"])
    missing = without_figures(runs, TIMING)
    if times.empty:
        reason = "No run was timed to its end, so nothing can be fitted."
        return Drawing(reason=reason, notes=tuple(marks.missing_notes(missing)))
    groups, left_out = split(runs, SHOWN)
    models = Series("model", tuple(models_in_order(runs)), in_legend=False)

    def panels(group: Group) -> Spec | None:
        own, absent = group.of(times), group.of(missing)
        drawn = [
            _two_panels(own[own["mode"] == mode], absent[absent["mode"] == mode], models, name)
            for mode, name in MODES.items()
            if mode in set(own["mode"])
        ]
        return column(*drawn, spacing=18) if drawn else None

    note = (
        "Without a profiler, mean ± standard deviation. Lines: least-squares power laws through the measured points, "
        "exponent ± its standard error from the residuals; they say nothing on sizes that were not measured."
    )
    return Drawing(stacked(groups, panels), (note, *left_out, *marks.missing_notes(missing)))


def _two_panels(times: pd.DataFrame, missing: pd.DataFrame, models: Series, mode: str) -> Spec:
    """The times of one mode against parameters, and against context with the runs that have none."""
    sized = times.dropna(subset="parameters")
    sized = sized.assign(line=[f"context {length}" for length in sized["context_length"]])
    in_order = dict.fromkeys(sized.sort_values("context_length")["line"])
    lines = Series("line", tuple(in_order), in_legend=False)
    sizes = Log.around(sized["parameters"], WIDTH_PX)
    x = alt.X("parameters:Q", scale=sizes.scale, axis=sizes.axis("parameters"))
    contexts = Contexts.of([*times["context_length"], *missing["context_length"]])
    left = _panel(sized, Against("parameters", "model", x, sizes.low, lines), missing.iloc[:0], contexts)
    to_context = Against("context_length", "context_length", contexts.x(), contexts.low, models)
    right = _panel(times, to_context, missing, contexts)
    apart = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
    return row(left.properties(title=marks.panel_title(mode)), right, spacing=24, resolve=apart)


def _panel(times: pd.DataFrame, against: Against, missing: pd.DataFrame, contexts: Contexts) -> alt.LayerChart:
    fits = laws(times, against.column, against.varied)
    ends = marks.with_ends(times, "mean_ms", "std_ms", "mean")
    above_px = LAW_PX * min(len(fits), MOST_LAWS + 1)
    y = Log.around(ends[["mean_ms", "mean_low", "mean_high"]].to_numpy().ravel(), HEIGHT_PX + above_px)
    y = y.with_room(below_px=marks.room_px(missing), above_px=above_px)
    axis = y.axis("time of a step (ms)" if against.column == "parameters" else None)
    measured, low = (alt.Y(f"{name}:Q", scale=y.scale, axis=axis) for name in ("mean_ms", "mean_low"))
    base = alt.Chart(ends).encode(x=against.x, color=against.series.color())
    seen = marks.tooltip(
        ends, ("parameters", "parameters", ".4~s"), ("mean_ms", "step (ms)", marks.DIGITS),
        ("std_ms", "± (ms)", marks.DIGITS),
    )  # fmt: skip
    layers = [
        *_fitted(fits, against, y),
        base.mark_rule().encode(y=low, y2="mean_high"),
        base.mark_point(filled=True).encode(y=measured, shape=against.series.shape(), tooltip=seen),
        *_exponents_written(fits, against, y),
        *marks.missing_marks(missing, contexts, y, against.series),
    ]
    return alt.layer(*layers, width=WIDTH_PX, height=y.length_px)


def _fitted(fits: list[Law], against: Against, y: Log) -> list[alt.Chart]:
    """The fitted lines, over the points that they were fitted to."""
    rows = [points.assign(fitted_ms=law.at(points[against.column])) for points, law in fits if law]
    if not rows:
        return []
    fitted, series = alt.Y("fitted_ms:Q", scale=y.scale), against.series
    line = alt.Chart(pd.concat(rows)).mark_line()
    return [line.encode(x=against.x, y=fitted, color=series.color(), strokeDash=series.dash())]


def _exponents_written(fits: list[Law], against: Against, y: Log) -> list[alt.Chart]:
    """Marker, name and exponent of each line, in the upper left corner."""
    lines = []
    for points, law in fits[:MOST_LAWS]:
        name = points[against.series.column].iloc[0]
        lines.append((name, f"{name}: exponent {law.in_words()}" if law else f"{name}: too few points"))
    if len(fits) > MOST_LAWS:
        lines.append((None, f"and {len(fits) - MOST_LAWS} more"))
    rows = pd.DataFrame(lines, columns=[against.series.column, "text"])
    rows["mean_ms"] = [y.at_px(y.length_px - LAW_PX * (line + 0.5)) for line in range(len(rows))]
    base = alt.Chart(rows.assign(**{against.column: against.left})).encode(x=f"{against.column}:Q", y="mean_ms:Q")
    color, shape = against.series.color(), against.series.shape()
    named = base.transform_filter(f"isValid(datum[{against.series.column!r}])").encode(color=color, shape=shape)
    text = base.mark_text(align="left", fontSize=SMALLEST + 1, dx=16)
    return [named.mark_point(filled=True, size=30, xOffset=8), text.encode(text="text:N")]


def caption_scaling(tables: Tables) -> str:
    """The exponents of the fitted power laws, per mode."""
    times = step_times(tables["runs"], tables["timings"])
    against = (("parameters", "parameters", "model"), ("context", "context_length", "context_length"))
    sentences = [
        f"{name}: exponent {interval(exponents, _two_digits)} of {what}"
        for mode, name in MODES.items()
        for what, x, varied in against
        if (exponents := [law.exponent for _, law in laws(times[times["mode"] == mode], x, varied) if law])
    ]
    return f"Fitted to what was measured: {'; '.join(sentences)}." if sentences else "Too few sizes to fit a power law."


def _two_digits(value: float) -> str:
    return f"{value:.2f}"


FIGURES = (
    Figure(
        "scaling", "How the time of a step grows with parameters and with context", draw_scaling, caption_scaling,
        tables=("runs", "timings"),
    ),
)  # fmt: skip
