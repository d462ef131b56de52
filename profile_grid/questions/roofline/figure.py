"""Figure of the roofline: FLOP/s and bytes/s of each part of the forward pass, compared with the peaks of the GPU."""

import altair as alt
import pandas as pd

from cs336_model.arithmetic.flops import forward_bytes, forward_flops
from cs336_model.arithmetic.memory import ELEMENT_BYTES
from kernel_tables.attribution.path_text import innermost
from profile_grid.figures import marks
from profile_grid.figures.panels import AXIS_PX, GAP_PX, Drawing, Figure, Frame, Spec, Tables, column, side_by_side
from profile_grid.figures.roofs import RoofAxes
from profile_grid.figures.run_selection import leanest_runs, models_in_order, runs_without_results, with_dimensions
from profile_grid.figures.theme import INK, SMALL, WIDTH, LogAxis, Series
from profile_grid.gpu_peaks import Peaks, peaks_in_words, peaks_of
from profile_grid.quantities import interval, known, rate
from profile_grid.results.results import COMPLETE
from profile_grid.study import stages
from profile_grid.tables import ideal, names
from profile_grid.tables.gains import LEADING_KEYS

PARTS_PER_LINE, HEIGHT_PX = 4, 120  # of the panels of FLOP/s
FACET_PX = (WIDTH - AXIS_PX) // PARTS_PER_LINE - GAP_PX
NAMES_PX, LINE_PX = 190, 19  # of the panel of bytes/s: width of the names of parts, height of each line


def roofline(runs: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """One row per run and part of the forward pass: `flops` and `bytes` from the shapes, the measured `gpu_s`, and
    their ratios. FLOPs are NaN if the shapes give none for the part.

    Of each configuration, only the run with the fewest phases has rows, and none if the model is not this project's,
    since its parts are unknown.
    """
    gpu_s_by_run = _gpu_seconds_by_part(ranges)
    rows = []
    for run in leanest_runs(runs[runs[stages.CAPTURE.status_column] == COMPLETE]).to_dict("records"):
        shape, gpu_s = ideal.shape_of_run(run), gpu_s_by_run.get(run["run"], {})
        if shape is None:
            continue
        flops, part_bytes = forward_flops(shape), forward_bytes(shape, ELEMENT_BYTES[run["precision"]])
        rows += [
            (run["run"], run["device_name"], part, flops.get(part), moved_bytes, gpu_s[part])
            for part, moved_bytes in part_bytes.items()
            if gpu_s.get(part, 0) > 0
        ]
    table = pd.DataFrame(rows, columns=["run", "device_name", "part", "flops", "bytes", "gpu_s"])
    table = table.astype(dict.fromkeys(("flops", "bytes", "gpu_s"), "float64"))
    rates = table.assign(
        flop_per_s=table["flops"] / table["gpu_s"],
        bytes_per_s=table["bytes"] / table["gpu_s"],
        flop_per_byte=table["flops"] / table["bytes"],
    )
    return with_dimensions(rates, runs)


def _gpu_seconds_by_part(ranges: pd.DataFrame) -> dict[str, dict[str, float]]:
    """GPU seconds in one forward pass, by run and innermost range."""
    forward = ranges[ranges["phase"] == names.FORWARD]
    keys = [forward["run"], forward["range"].map(innermost)]
    total_ns = forward["gpu_time_ns"].groupby(keys, observed=True).sum()
    steps = forward["step"].groupby(forward["run"], observed=True).nunique()
    seconds_by_run: dict[str, dict[str, float]] = {}
    for (run, name), time_ns in total_ns.items():
        seconds_by_run.setdefault(run, {})[name] = time_ns / steps[run] / 1e9
    return seconds_by_run


def draw_roofline(tables: Tables) -> Drawing:
    """A panel of FLOP/s against FLOP per byte for each part with known FLOPs, above one with the bytes/s of all parts;
    again for each precision, since its peaks differ, and for each further dimension that varies."""
    runs = tables["runs"]
    points = roofline(runs, tables["ranges"])
    points = points.assign(gigabytes_per_s=points["bytes_per_s"] / 1e9)
    series = Series("model", tuple(model for model in models_in_order(runs) if model in set(points["model"])))

    def panel(rows: pd.DataFrame, _: pd.DataFrame) -> Spec:
        data = rows.drop(columns="mode")
        peaks = peaks_of(data["device_name"].iloc[0])
        flops_panels = side_by_side(_flops_panels(data, peaks, series), HEIGHT_PX, PARTS_PER_LINE, one_axis=True)
        return column(flops_panels, _bytes_panel(data, peaks, series), spacing=18)

    note = (
        "A marker per model and context. FLOPs are those of the matrix products and the softmax; bytes are the least "
        "that a part can move (each operand read once, each result written once), so a part of many kernels lies lower "
        "than its kernels do."
    )
    frame = Frame(LEADING_KEYS, "No run has both kernels by part of the model and FLOPs from its shapes.")
    return frame.drawing(
        points, runs, runs_without_results(runs, stages.CAPTURE), panel, (note, *_peak_sentences(points))
    )


def _flops_panels(points: pd.DataFrame, peaks: Peaks | None, series: Series) -> dict[str, alt.LayerChart]:
    """The panels of FLOP/s, by part. They have the same axes; only the first panel of each line shows its y axis."""
    points = points.dropna(subset="flops")
    peak = peaks.flop_per_s(points["precision"].iloc[0]) if peaks and len(points) else None
    x = LogAxis.around(points["flop_per_byte"], FACET_PX, margin=2)
    y = LogAxis.around([*points["flop_per_s"], *([peak] if peak else [])], HEIGHT_PX, margin=1.8)
    panels = {}
    for number, (part, part_points) in enumerate(points.groupby("part", sort=False)):
        is_first = number % PARTS_PER_LINE == 0
        y_axis = y.axis("FLOP/s reached" if is_first else None)
        y_axis.labels = y_axis.ticks = is_first
        axes = RoofAxes(x, y, "flop_per_byte", "FLOP per byte", y_axis)
        roof = []
        if peak:
            label = axes.roof_label(f"{peak / 1e12:g} TFLOP/s", peak, align="right", baseline="bottom", dy=-3)
            roof = [axes.roof(peak, peaks.memory_bytes_per_s, color=INK, strokeWidth=1.2), label]
        panels[part] = alt.layer(*roof, _markers(part_points, axes, series))
    return panels


def _markers(points: pd.DataFrame, axes: RoofAxes, series: Series) -> alt.Chart:
    tooltip = marks.tooltip(
        points, ("part", "part"), ("flop_per_s", "FLOP/s", ".4~s"), ("flop_per_byte", "FLOP per byte", ".4~r"),
        ("gpu_s", "per pass (s)", ".4~s"),
    )  # fmt: skip
    markers = alt.Chart(points).mark_point(filled=True, opacity=0.8, size=30)
    return markers.encode(**axes.channels, color=series.color(), shape=series.shape(), tooltip=tooltip)


def _bytes_panel(points: pd.DataFrame, peaks: Peaks | None, series: Series) -> alt.LayerChart:
    """The panel of bytes/s: a line per part, and a rule at the peak of the memory."""
    peak = peaks.memory_bytes_per_s / 1e9 if peaks else None
    width = WIDTH - NAMES_PX
    axis = LogAxis.around([*points["gigabytes_per_s"], *([peak] if peak else [])], width)
    parts = list(dict.fromkeys(points["part"]))
    x = alt.X("gigabytes_per_s:Q", scale=axis.scale, axis=axis.axis("least bytes / measured time (GB/s)"))
    y = alt.Y("part:N", scale=alt.Scale(type="point", domain=parts, padding=0.5), axis=marks.name_axis(grid=True))
    tooltip = marks.tooltip(
        points, ("part", "part"), ("gigabytes_per_s", "GB/s at least", marks.DIGITS), ("gpu_s", "per pass (s)", ".4~s")
    )
    markers = alt.Chart(points).mark_point(filled=True, size=26, opacity=0.8)
    layers = [markers.encode(x=x, y=y, color=series.color(), shape=series.shape(), tooltip=tooltip)]
    if peak:
        peak_line = alt.Chart(pd.DataFrame({"gigabytes_per_s": [peak], "text": [f"{peak:g} GB/s"]})).encode(x=x)
        text = peak_line.mark_text(align="right", baseline="bottom", dy=-3, fontSize=SMALL)
        layers += [peak_line.mark_rule(color=INK, strokeWidth=1.2), text.encode(y=alt.value(0), text="text:N")]
    return alt.layer(*layers, width=width, height=LINE_PX * len(parts))


def _peak_sentences(points: pd.DataFrame) -> list[str]:
    """For each device and precision of these parts, a sentence on the peaks, or that they are not known."""
    pairs = points[["device_name", "precision"]].drop_duplicates().itertuples(index=False)
    return [peaks_in_words(device if known(device) else None, precision) for device, precision in pairs]


def result_roofline(tables: Tables) -> str:
    """The FLOP/s that the parts reach, from the lowest to the highest."""
    points = roofline(tables["runs"], tables["ranges"])
    return f"The parts of the forward pass reach {interval(points['flop_per_s'], rate)}"


FIGURES = (
    Figure(
        "roofline", "FLOP/s of each part of the forward pass against FLOP per byte, and its bytes per second",
        draw_roofline, result_roofline, tables=("runs", "ranges"),
    ),
)  # fmt: skip
