"""Figure of (a): how long the device is busy in a step, which shows whether the program launches fast enough."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY, PALE
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.panels import AXIS_PX, Frame
from profile_grid.figures.run_selection import models_in_order, with_dimensions, without_figures, words
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.theme import GROUND, WIDTH
from profile_grid.quantities import interval, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL, MODES
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.evidence import LAUNCH_BOUND_SHARE
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.wording import of_all

PANEL_DIMENSIONS = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
MODE_FILLS = {"forward": GROUND, "forward_backward": PALE, "train_step": GREY}
WIDTH_PX, HEIGHT_PX = WIDTH - AXIS_PX, 260


def busy_and_wall(runs: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """One row per run that has kernels: wall_ms and busy_ms of a step, its kernels, mean kernel_us, busy_share."""
    steps = phases[(phases["phase"] == WHOLE_STEP) & (phases["kernels"] > 0) & (phases["wall_ns"] > 0)]
    means = (
        steps.groupby("run", sort=False, observed=True)[["wall_ns", "gpu_busy_ns", "kernel_ns", "kernels"]]
        .mean()
        .reset_index()
    )
    rows = means[["run", "kernels"]].assign(
        wall_ms=means["wall_ns"] / 1e6,
        busy_ms=means["gpu_busy_ns"] / 1e6,
        kernel_us=means["kernel_ns"] / 1e3 / means["kernels"],
        busy_share=means["gpu_busy_ns"] / means["wall_ns"],
    )
    return with_dimensions(rows, runs)


def draw_launch_bound(tables: Tables) -> Drawing:
    """The busy share of a step against the mean length of a kernel, a marker per run: models by colour, modes by
    fill."""
    runs, terms = tables["runs"], words(tables["runs"])
    busy = busy_and_wall(runs, tables["phases"])
    busy = busy.assign(how=busy["mode"].map(MODES))
    models = tuple(model for model in models_in_order(runs) if model in set(busy["model"]))
    series = Series("model", models, hollow=True)
    fills = {MODES[mode]: fill for mode, fill in MODE_FILLS.items() if mode in set(busy["mode"])}
    tooltip = marks.tooltip(
        busy, ("wall_ms", "wall (ms)", marks.DIGITS), ("busy_ms", "busy (ms)", marks.DIGITS),
        ("busy_share", "busy share", marks.SHARE), ("kernels", terms.kernels, ",.0f"),
        ("kernel_us", f"mean {terms.kernel} (µs)", marks.DIGITS),
    )  # fmt: skip

    def panel(rows: pd.DataFrame, _: pd.DataFrame) -> alt.Chart:
        lengths = Log.around(rows["kernel_us"], WIDTH_PX)
        share = alt.Axis(title=f"{terms.device} busy (share of wall time)", format="%")
        markers = alt.Chart(rows, width=WIDTH_PX, height=HEIGHT_PX).mark_point(strokeWidth=1.4)
        return markers.encode(
            x=alt.X("kernel_us:Q", scale=lengths.scale, axis=lengths.axis(f"mean {terms.kernel} length (µs)")),
            y=alt.Y("busy_share:Q", scale=alt.Scale(domain=[0, 1.04], nice=False), axis=share),
            color=series.color(), shape=series.shape(), fill=marks.fill_key("how", fills), tooltip=tooltip,
        )  # fmt: skip

    note = (
        f"One marker per run, means of the captured steps. Where the {terms.device} is not busy, it mostly waits: the "
        f"program issues {terms.kernels} more slowly than they finish. The profiler adds to every launch."
    )
    frame = Frame(
        PANEL_DIMENSIONS, f"No capture holds {terms.kernels}, so how long the {terms.device} was busy is not known."
    )
    return frame.drawing(busy, runs, without_figures(runs, CAPTURE), panel, (note,))


def result_launch_bound(tables: Tables) -> str:
    """The share of a step in which the device is busy, and the number of runs in which it waits for long."""
    busy, device = busy_and_wall(tables["runs"], tables["phases"]), words(tables["runs"]).device
    if busy.empty:
        return ""
    waits = (1 - busy["busy_share"] >= LAUNCH_BOUND_SHARE).sum()
    share = f"The {device} is busy for {interval(busy['busy_share'], percent)} of a step"
    return f"{share}; it waits for {percent(LAUNCH_BOUND_SHARE)} or more in {of_all(waits, len(busy), 'run')}"


LAUNCH_BOUND = Figure(
    "launch_bound", "Share of a step in which the device works, against the mean length of a kernel",
    draw_launch_bound, result_launch_bound, tables=("runs", "phases"),
)  # fmt: skip
