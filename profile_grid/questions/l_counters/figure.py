"""Figure of (l): measured intensity and speed of every kernel configuration, below the roofs of the GPU."""

import altair as alt
import pandas as pd

from kernel_tables.counters.joining import COMPUTE, LATENCY, MEMORY, TOO_SMALL
from profile_grid.figures import marks, panels, run_selection
from profile_grid.figures.theme import INK, SMALL, SOFT, LogAxis, Series
from profile_grid.quantities import interval, percent, rate
from profile_grid.questions.l_counters.document import NO_ANSWER
from profile_grid.study import dimensions, stages

VERDICTS = (COMPUTE, MEMORY, LATENCY, TOO_SMALL)
WIDTH_PX, HEIGHT_PX, COLUMNS, MAX_PANELS = 215, 190, 2, 12
LEAST_AREA, AREA = 12, 600  # of a marker without time; what a marker with all the time has in addition


def draw(tables: panels.Tables) -> panels.Drawing:
    """A panel per configuration: FLOP/s against FLOP per byte of DRAM in its fullest mode, a marker per kernel and size
    of launch, whose area grows with its share of the time."""
    runs, roofs, kernels = tables["runs"], tables["counter_roofs"], _kernels_drawn(tables)
    runs_with_counters = runs[runs[stages.COUNTERS.status_column] != stages.NOT_ASKED]
    points = kernels[(kernels["flop_per_s"] > 0) & (kernels["flops_per_byte"] > 0)]
    points = points.assign(size=LEAST_AREA + AREA * points["share"])
    series = Series("verdict", tuple(verdict for verdict in VERDICTS if verdict in set(points["verdict"])))
    share = 1 - points.groupby("run")["share"].sum()
    note = (
        "A marker per kernel and size of its launch; its area is its share of the kernels' time. Lines: what this GPU"
        f" reached; dashed: its data sheet. Kernels without FLOPs ({interval(share, percent)} of the time) have no"
        " marker, and runs of other modes no panel."
    )
    frame = panels.Frame((), NO_ANSWER, COLUMNS, MAX_PANELS)
    return frame.drawing(
        points, runs, run_selection.runs_without_results(runs_with_counters, stages.COUNTERS),
        lambda rows, _: _panel(rows, roofs[roofs["run"].isin(rows["run"])], series), (note,),
    )  # fmt: skip


def _kernels_drawn(tables: panels.Tables) -> pd.DataFrame:
    """The kernels of the fullest counted run of each configuration, which holds those of the others."""
    kernels, runs = tables["counter_kernels"], tables["runs"]
    return kernels[kernels["run"].isin(run_selection.fullest_runs(runs[runs["run"].isin(kernels["run"])])["run"])]


def _panel(points: pd.DataFrame, roofs: pd.DataFrame, series: Series) -> alt.LayerChart:
    memory = roofs[roofs["roof"] == "memory"].iloc[0]
    heights = roofs[~roofs["roof"].isin(("memory", "fp16")) & roofs["reached_per_s"].notna()]  # fp16 is as high as bf16
    x = LogAxis.around(points["flops_per_byte"], WIDTH_PX, margin=2)
    y = LogAxis.around(
        [*points["flop_per_s"], *heights["reached_per_s"], *heights["data_sheet_per_s"].dropna()], HEIGHT_PX
    )
    channels = {
        "x": alt.X("flops_per_byte:Q", scale=x.scale, axis=x.axis("FLOP per byte of DRAM, counted")),
        "y": alt.Y("flop_per_s:Q", scale=y.scale, axis=y.axis("FLOP/s")),
    }
    tooltip = marks.tooltip(
        points, ("kernel", "kernel"), ("grid", "grid"), ("because", "limited by"), ("flop_per_s", "FLOP/s", ".3~s"),
        ("gpu_time_ms", "ms in a pass", marks.DIGITS),
    )  # fmt: skip
    columns = ["flops_per_byte", "flop_per_s", "verdict", "size", "kernel", "grid", "because", "gpu_time_ms"]
    markers = alt.Chart(points[["run", *dimensions.KEYS, *columns]]).mark_point(filled=True, opacity=0.7)
    markers = markers.encode(
        **channels,
        color=series.color(),
        shape=series.shape(),
        size=alt.Size("size:Q", scale=None, legend=None),
        tooltip=tooltip,
    )
    lines = [
        line
        for roof in heights.to_dict("records")
        for column, dashed in (("reached_per_s", False), ("data_sheet_per_s", True))
        if pd.notna(roof[column])
        for line in _roof(x, y, roof["roof"], roof[column], memory[column], dashed, channels)
    ]
    return alt.layer(*lines, markers).properties(width=WIDTH_PX, height=HEIGHT_PX)


def _roof(
    x: LogAxis, y: LogAxis, name: str, height: float, slope: float, dashed: bool, channels: dict
) -> list[alt.Chart]:
    """The upper limit for kernels of this kind as a line: dashed from the data sheet, else with its name and height."""
    bend = height / slope if pd.notna(slope) else x.low
    ends = sorted({max(x.low, y.low / slope if pd.notna(slope) else x.low), min(max(bend, x.low), x.high), x.high})
    heights = [min(height, end * slope) if pd.notna(slope) else height for end in ends]
    rows = pd.DataFrame({"flops_per_byte": ends, "flop_per_s": heights})
    style = {"strokeDash": [3, 3], "color": SOFT} if dashed else {"color": INK}
    line = alt.Chart(rows).mark_line(strokeWidth=1.1, clip=True, **style).encode(**channels)
    if dashed:
        return [line]
    label = pd.DataFrame({"flops_per_byte": [x.high], "flop_per_s": [height], "text": [f"{name}: {rate(height)}"]})
    text = alt.Chart(label).mark_text(align="left", baseline="middle", dx=5, fontSize=SMALL)
    return [line, text.encode(**channels, text="text:N")]


def result(tables: panels.Tables) -> str:
    """The share of their nearer roof that the kernels of a run reach, weighted by time."""
    kernels = _kernels_drawn(tables)
    weighted = kernels[["compute_share", "memory_share"]].max(axis=1).clip(upper=1.0) * kernels["share"]
    mean = weighted.groupby(kernels["run"]).sum()
    return f"On average over their time, the kernels of a run reach {interval(mean, percent)} of their nearer roof"


FIGURES = (
    panels.Figure(
        "measured_roofline", "FLOP/s of every kernel against its FLOP per byte, both counted, with the roofs",
        draw, result, tables=("runs", "counter_kernels", "counter_roofs"),
    ),
)  # fmt: skip
