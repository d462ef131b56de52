"""Figure of (l): measured intensity and speed of every kernel configuration, below the roofs of the GPU."""

import math

import altair as alt
import pandas as pd

from kernel_tables.counters.joining import COMPUTE, LATENCY, MEMORY, TOO_SMALL
from profile_grid.figures import marks, panels, run_selection
from profile_grid.figures.roofs import RoofAxes
from profile_grid.figures.theme import INK, SOFT, LogAxis, Series
from profile_grid.quantities import interval, percent, rate
from profile_grid.questions.l_counters.document import NO_ANSWER
from profile_grid.study import dimensions, stages

VERDICTS = (COMPUTE, MEMORY, LATENCY, TOO_SMALL)
WIDTH_PX, HEIGHT_PX, PANELS_PER_LINE, MAX_PANELS = 215, 190, 2, 12
MIN_AREA, AREA_OF_ALL_TIME = 12, 600  # of a marker, in square pixels: the smallest; what a share of 1 adds


def draw(tables: panels.Tables) -> panels.Drawing:
    """A panel per configuration, of its fullest mode: FLOP/s against FLOP per byte of DRAM. There is a marker per
    kernel and size of launch; its area grows with its share of the time."""
    runs, roofs, kernels = tables["runs"], tables["counter_roofs"], _kernels_drawn(tables)
    runs_with_counters = runs[runs[stages.COUNTERS.status_column] != stages.NOT_ASKED]
    points = kernels[(kernels["flop_per_s"] > 0) & (kernels["flops_per_byte"] > 0)]
    points = points.assign(size=MIN_AREA + AREA_OF_ALL_TIME * points["share"])
    series = Series("verdict", tuple(verdict for verdict in VERDICTS if verdict in set(points["verdict"])))
    without_flops = 1 - points.groupby("run")["share"].sum()
    note = (
        "A marker per kernel and size of its launch; its area is its share of the kernels' time. Lines: what this GPU"
        f" reached; dashed: its data sheet. Kernels without FLOPs ({interval(without_flops, percent)} of the time) have"
        " no marker, and runs of other modes no panel."
    )
    frame = panels.Frame((), NO_ANSWER, PANELS_PER_LINE, MAX_PANELS)
    return frame.drawing(
        points, runs, run_selection.runs_without_results(runs_with_counters, stages.COUNTERS),
        lambda rows, _: _panel(rows, roofs[roofs["run"].isin(rows["run"])], series), (note,),
    )  # fmt: skip


def _kernels_drawn(tables: panels.Tables) -> pd.DataFrame:
    """Of each configuration, the kernels of its fullest run with counters, which has those of the others, too."""
    kernels, runs = tables["counter_kernels"], tables["runs"]
    runs_with_kernels = runs[runs["run"].isin(kernels["run"])]
    return kernels[kernels["run"].isin(run_selection.fullest_runs(runs_with_kernels)["run"])]


def _panel(points: pd.DataFrame, roofs: pd.DataFrame, series: Series) -> alt.LayerChart:
    """The markers of one configuration, below the roofs that its run reached and, dashed, those of the data sheet."""
    # the roof of fp16 is left out: it is as high as that of bf16
    compute_roofs = roofs[~roofs["roof"].isin(("memory", "fp16")) & roofs["reached_per_s"].notna()]
    roof_rates = (*compute_roofs["reached_per_s"], *compute_roofs["data_sheet_per_s"].dropna())
    x = LogAxis.around(points["flops_per_byte"], WIDTH_PX, margin=2)
    y = LogAxis.around([*points["flop_per_s"], *roof_rates], HEIGHT_PX)
    axes = RoofAxes(x, y, "flops_per_byte", "FLOP per byte of DRAM, counted", y.axis("FLOP/s"))
    tooltip = marks.tooltip(
        points, ("kernel", "kernel"), ("grid", "grid"), ("because", "limited by"), ("flop_per_s", "FLOP/s", ".3~s"),
        ("gpu_time_ms", "ms in a pass", marks.DIGITS),
    )  # fmt: skip
    columns = ["flops_per_byte", "flop_per_s", "verdict", "size", "kernel", "grid", "because", "gpu_time_ms"]
    markers = alt.Chart(points[["run", *dimensions.KEYS, *columns]]).mark_point(filled=True, opacity=0.7)
    size = alt.Size("size:Q", scale=None, legend=None)
    markers = markers.encode(**axes.channels, color=series.color(), shape=series.shape(), size=size, tooltip=tooltip)
    memory_roof = roofs[roofs["roof"] == "memory"].iloc[0].fillna(math.inf)  # an unknown rate of memory limits nothing
    lines = []
    for roof in compute_roofs.to_dict("records"):
        reached, data_sheet = roof["reached_per_s"], roof["data_sheet_per_s"]
        label = f"{roof['roof']}: {rate(reached)}"
        lines.append(axes.roof(reached, memory_roof["reached_per_s"], color=INK, strokeWidth=1.1))
        lines.append(axes.roof_label(label, reached, align="left", baseline="middle", dx=5))
        if pd.notna(data_sheet):
            dashed = {"color": SOFT, "strokeDash": [3, 3], "strokeWidth": 1.1}
            lines.append(axes.roof(data_sheet, memory_roof["data_sheet_per_s"], **dashed))
    return alt.layer(*lines, markers).properties(width=WIDTH_PX, height=HEIGHT_PX)


def result(tables: panels.Tables) -> str:
    """The share of their nearer roof that the kernels of a run reach, weighted by time."""
    kernels = _kernels_drawn(tables)
    roof_share = kernels[["compute_share", "memory_share"]].max(axis=1).clip(upper=1.0)
    mean = (roof_share * kernels["share"]).groupby(kernels["run"]).sum()
    return f"On average over their time, the kernels of a run reach {interval(mean, percent)} of their nearer roof"


FIGURES = (
    panels.Figure(
        "measured_roofline", "FLOP/s of every kernel against its FLOP per byte, both counted, with the roofs",
        draw, result, tables=("runs", "counter_kernels", "counter_roofs"),
    ),
)  # fmt: skip
