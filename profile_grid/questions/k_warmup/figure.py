"""Figure of (k): every step of a process, including the first, divided by the mean of the measured ones."""

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.panels import Drawing, Figure, Frame, Spec, Tables, side_by_side
from profile_grid.figures.run_selection import models_in_order, runs_without_results
from profile_grid.figures.theme import SMALL, SOFT, LogAxis, Series
from profile_grid.quantities import interval, significant
from profile_grid.questions.k_warmup.document import NO_ANSWER
from profile_grid.study.dimensions import MODE
from profile_grid.study.stages import TIMING
from profile_grid.tables.gains import LEADING_KEYS, whole_steps

HEIGHT_PX = 190
MIN_NUMBERED_RATIO = 1.1  # time ÷ mean of the run: the slowest measured step of a panel has a label from this ratio on


def draw(tables: Tables) -> Drawing:
    """A panel per mode: the time of a step ÷ mean of the measured steps, by number of the step; a line per run."""
    runs, rows = tables["runs"], every_step(tables)
    series = Series("model", tuple(model for model in models_in_order(runs) if model in set(rows["model"])))
    y = LogAxis.around([1.0, *rows["ratio"]], HEIGHT_PX)

    def mode_panels(data: pd.DataFrame, _: pd.DataFrame) -> Spec:
        by_mode = {mode: data[data["mode"] == mode].drop(columns="mode") for mode in MODE.values}
        panels = {MODE.name_of(mode): _panel(steps, y, series) for mode, steps in by_mode.items() if len(steps)}
        return side_by_side(panels, HEIGHT_PX, len(panels))

    note = (
        f"A line per run, without a profiler; dashed: where the measured steps begin. The slowest measured step is"
        f" numbered if it takes {MIN_NUMBERED_RATIO} times the mean of its run or longer."
    )
    return Frame(LEADING_KEYS, NO_ANSWER).drawing(rows, runs, runs_without_results(runs, TIMING), mode_panels, (note,))


def every_step(tables: Tables) -> pd.DataFrame:
    """All warm-up and measured steps of the runs that have both, numbered from 0 (`number`). `ratio`: time ÷ mean of
    the measured steps; `begins`: the place halfway between the last warm-up step and the first measured one."""
    warmup, measured = (whole_steps(tables[name]) for name in ("warmup_steps", "steps"))
    mean_ms, warmup_counts = measured.groupby("run")["ms"].mean(), warmup.groupby("run")["step"].count()
    measured = measured.assign(number=measured["step"] + measured["run"].map(warmup_counts))
    rows = pd.concat([warmup.assign(number=warmup["step"]), measured], ignore_index=True)
    rows = rows[rows["run"].isin({*mean_ms.index} & {*warmup_counts.index})].astype({"number": "int64"})
    rows = rows.assign(ratio=rows["ms"] / rows["run"].map(mean_ms), begins=rows["run"].map(warmup_counts) - 0.5)
    return rows.sort_values(["run", "number"], kind="stable", ignore_index=True)


def _panel(rows: pd.DataFrame, y: LogAxis, series: Series) -> alt.LayerChart:
    channels = {
        "x": alt.X("number:Q", axis=alt.Axis(title="step", format="d", tickMinStep=1)),
        "y": alt.Y("ratio:Q", scale=y.scale, axis=y.axis("time of a step ÷ mean of the measured")),
    }
    base = alt.Chart(rows).encode(**channels, color=series.color(), detail="run:N")
    tooltip = marks.tooltip(
        rows, ("number", "step", "d"), ("ms", "ms", marks.DIGITS), ("ratio", "÷ mean", marks.DIGITS)
    )
    begins = alt.Chart(rows.drop_duplicates("begins")[["begins"]]).mark_rule(color=SOFT, strokeDash=[2, 2])
    slow = rows[(rows["number"] > rows["begins"]) & (rows["ratio"] >= MIN_NUMBERED_RATIO)]
    slowest = slow.nlargest(1, "ratio")  # labels of all runs would cover each other
    texts = alt.Chart(slowest.assign(text=[f"step {number}" for number in slowest["number"]]))
    label = [texts.mark_text(dy=-9, fontSize=SMALL).encode(**channels, text="text:N")] if len(slowest) else []
    return alt.layer(
        begins.encode(x="begins:Q"), base.mark_line(opacity=0.6),
        base.mark_point(filled=True, size=18).encode(shape=series.shape(), tooltip=tooltip), *label,
    )  # fmt: skip


def result(tables: Tables) -> str:
    """The times of the first and of the second step, relative to the mean of the measured ones."""
    rows = every_step(tables)
    first, second = (rows[rows["number"] == number]["ratio"] for number in (0, 1))
    also = f", the second {interval(second, significant)} times" if len(second) else ""
    return f"The first step takes {interval(first, significant)} times as long as a measured one{also}"


FIGURES = (
    Figure(
        "warmup", "Time of every step of a process, from the first", draw, result,
        tables=("runs", "warmup_steps", "steps"),
    ),
)  # fmt: skip
