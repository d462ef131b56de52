"""Figure of (a): how long the device is busy in a step, which tells whether the program launches fast enough."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY, PALE
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.shown import models_in_order, with_dimensions, without_figures, words
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import GROUND, SMALL
from profile_grid.quantities import interval, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL, MODES
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.measured import Words
from profile_grid.tables.names import WHOLE_STEP

SHOWN = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
LAUNCH_BOUND_SHARE = 0.5
DIAGONALS = (1.0, 0.5, 0.25)
MODE_FILLS = {"forward": GROUND, "forward_backward": PALE, "train_step": GREY}
WIDTH_PX, HEIGHT_PX = 270, 260


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
    """Wall time of a step against the time in which the device is busy; that share against the length of a kernel."""
    runs = tables["runs"]
    busy, missing = busy_and_wall(runs, tables["phases"]), marks.missing_notes(without_figures(runs, CAPTURE))
    named = words(runs)
    if busy.empty:
        reason = f"No capture holds {named.kernels}, so how long the {named.device} was busy is not known."
        return Drawing(reason=reason, notes=tuple(missing))
    busy = busy.assign(how=busy["mode"].map(MODES))
    series = Series("model", tuple(models_in_order(runs)), hollow=True)
    fills = {MODES[mode]: fill for mode, fill in MODE_FILLS.items() if mode in set(busy["mode"])}
    groups, left_out = split(runs[runs["run"].isin(busy["run"])], SHOWN)

    def panels(group: Group) -> Spec:
        markers = _markers(group.of(busy), series, fills, named)
        return row(
            _busy_panel(group.of(busy), markers, named), _share_panel(group.of(busy), markers, named), spacing=24
        )

    note = (
        f"One marker per run, means of the captured steps. Below the line of 100 % the {named.device} waits: the "
        f"program issues {named.kernels} more slowly than they finish."
    )
    return Drawing(stacked(groups, panels), (note, *left_out, *missing))


def _markers(busy: pd.DataFrame, series: Series, fills: dict, named: Words) -> alt.Chart:
    """A marker per run, yet without its place: its colour and shape tell the model, its fill the mode."""
    seen = marks.tooltip(
        busy, ("wall_ms", "wall (ms)", marks.DIGITS), ("busy_ms", "busy (ms)", marks.DIGITS),
        ("busy_share", "busy share", marks.SHARE), ("kernels", named.kernels, ",.0f"),
        ("kernel_us", f"mean {named.kernel} (µs)", marks.DIGITS),
    )  # fmt: skip
    markers = alt.Chart(busy, width=WIDTH_PX, height=HEIGHT_PX).mark_point(strokeWidth=1.4)
    fill = marks.fill_key("how", fills)
    return markers.encode(color=series.color(), shape=series.shape(), fill=fill, tooltip=seen)


def _busy_panel(busy: pd.DataFrame, markers: alt.Chart, named: Words) -> alt.LayerChart:
    axis = Log.around(pd.concat([busy["wall_ms"], busy["busy_ms"]]), HEIGHT_PX, margin=1.6)
    x = alt.X("wall_ms:Q", scale=axis.scale, axis=axis.axis("wall time of a step (ms)"))
    y = alt.Y("busy_ms:Q", scale=axis.scale, axis=axis.axis(f"{named.device} busy in a step (ms)"))
    lines = pd.DataFrame([
        {"share": f"{share:.0%}", "wall_ms": wall, "busy_ms": wall * share, "end": wall == axis.high}
        for share in DIAGONALS for wall in (axis.low, axis.high)
    ])  # fmt: skip
    line = alt.Chart(lines).mark_line(color=GREY, strokeWidth=0.8, clip=True).encode(x=x, y=y, detail="share:N")
    name = alt.Chart(lines[lines["end"]]).mark_text(align="left", dx=4, fontSize=SMALL)
    return alt.layer(line, name.encode(x=x, y=y, text="share:N"), markers.encode(x=x, y=y))


def _share_panel(busy: pd.DataFrame, markers: alt.Chart, named: Words) -> alt.Chart:
    axis = Log.around(busy["kernel_us"], WIDTH_PX)
    share = alt.Axis(title=f"{named.device} busy (share of wall time)", format="%")
    return markers.encode(
        x=alt.X("kernel_us:Q", scale=axis.scale, axis=axis.axis(f"mean {named.kernel} length (µs)")),
        y=alt.Y("busy_share:Q", scale=alt.Scale(domain=[0, 1.04], nice=False), axis=share),
    )


def caption_launch_bound(tables: Tables) -> str:
    """How much of a step the device is busy, and in how many runs for less than half of it."""
    busy = busy_and_wall(tables["runs"], tables["phases"])
    named = words(tables["runs"])
    if busy.empty:
        return f"No capture holds {named.kernels}: how long the {named.device} was busy is not known."
    bound = busy[busy["busy_share"] < LAUNCH_BOUND_SHARE]
    most = f"The {named.device} is busy for {interval(busy['busy_share'], percent)} of a step's wall time"
    return f"{most}; for less than half of it in {len(bound)} of {len(busy)} runs."


LAUNCH_BOUND = Figure(
    "launch_bound", "Launch-bound or device-bound: wall time against the time in which the device works",
    draw_launch_bound, caption_launch_bound, tables=("runs", "phases"),
)  # fmt: skip
