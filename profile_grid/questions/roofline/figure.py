"""Figure of the roofline: FLOP/s and bytes/s of each part of the forward pass, against the peaks of the device."""

import altair as alt
import pandas as pd

from cs336_model.arithmetic.flops import forward_bytes, forward_flops
from cs336_model.arithmetic.memory import ELEMENT_BYTES
from kernel_tables.attribution.path_text import innermost
from profile_grid.figures import marks
from profile_grid.figures.panels import AXIS_PX, GAP_PX, Drawing, Figure, Frame, Spec, Tables, column, side_by_side
from profile_grid.figures.run_selection import leanest_runs, models_in_order, runs_without_results, with_dimensions
from profile_grid.figures.theme import INK, SMALL, WIDTH, LogAxis, Series
from profile_grid.gpu_peaks import Peaks, peaks_in_words, peaks_of
from profile_grid.quantities import interval, known
from profile_grid.quantities import rate as rate_in_words
from profile_grid.results.results import COMPLETE
from profile_grid.study import stages
from profile_grid.tables import ideal, names
from profile_grid.tables.gains import LEADING_KEYS

COLUMNS, HEIGHT_PX, NAMES_PX, LINE_PX = 4, 120, 190, 19
FACET_PX = (WIDTH - AXIS_PX) // COLUMNS - GAP_PX


def roofline(runs: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """One row per part of the forward pass: flops and bytes from the shapes, gpu_s measured, flop_per_s, bytes_per_s,
    flop_per_byte.

    One run per configuration, that with the fewest phases, if its counted FLOPs are those of the shapes: other people's
    models have other parts. FLOPs are NaN if the shapes give none.
    """
    gpu_s = _gpu_seconds_by_part(ranges)
    rows = []
    for run in leanest_runs(runs[runs[stages.CAPTURE.status_column] == COMPLETE]).to_dict("records"):
        shape, part_s = ideal.shape_of_run(run), gpu_s.get(run["run"], {})
        if shape is None or not part_s:
            continue
        flops, moved = forward_flops(shape), forward_bytes(shape, ELEMENT_BYTES[run["precision"]])
        rows += [
            (run["run"], run["device_name"], part, flops.get(part), moved[part], part_s[part])
            for part in moved
            if part_s.get(part, 0) > 0
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
    """By run and innermost range: GPU seconds in one forward pass."""
    forward = ranges[ranges["phase"] == names.FORWARD]
    keys = [forward["run"], forward["range"].map(innermost)]
    total_ns = forward["gpu_time_ns"].groupby(keys, observed=True).sum()
    steps = forward["step"].groupby(forward["run"], observed=True).nunique()
    seconds_by_run: dict[str, dict[str, float]] = {}
    for (run, name), time_ns in total_ns.items():
        seconds_by_run.setdefault(run, {})[name] = time_ns / steps[run] / 1e9
    return seconds_by_run


def draw_roofline(tables: Tables) -> Drawing:
    """A facet per part whose FLOPs the shapes give, of FLOP/s against FLOP per byte; below these, bytes/s of all parts.

    There is such a panel per precision and further dimension that varies, so its peaks are those of one precision.
    """
    runs = tables["runs"]
    points = roofline(runs, tables["ranges"])
    points = points.assign(gigabytes_per_s=points["bytes_per_s"] / 1e9)
    series = Series("model", tuple(model for model in models_in_order(runs) if model in set(points["model"])))

    def panel(rows: pd.DataFrame, _: pd.DataFrame) -> Spec:
        data = rows.drop(columns="mode")
        peaks, precision = peaks_of(data["device_name"].iloc[0]), data["precision"].iloc[0]
        rate = peaks.flop_per_s(precision) if peaks else None
        counted = data.dropna(subset="flops")
        x = LogAxis.around(counted["flop_per_byte"], FACET_PX, margin=2)
        y = LogAxis.around([*counted["flop_per_s"], *([rate] if rate else [])], HEIGHT_PX, margin=1.8)
        facets = {
            part: _flops_panel(counted[counted["part"] == part], x, y, peaks, rate, series, n % COLUMNS == 0)
            for n, part in enumerate(dict.fromkeys(counted["part"]))
        }
        flops_panels = side_by_side(facets, HEIGHT_PX, COLUMNS, one_axis=True)
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


def _flops_panel(
    points: pd.DataFrame,
    x: LogAxis,
    y: LogAxis,
    peaks: Peaks | None,
    rate: float | None,
    series: Series,
    has_axis: bool,
) -> alt.LayerChart:
    axis = y.axis("FLOP/s reached" if has_axis else None)
    axis.labels = axis.ticks = has_axis
    channels = {
        "x": alt.X("flop_per_byte:Q", scale=x.scale, axis=x.axis("FLOP per byte")),
        "y": alt.Y("flop_per_s:Q", scale=y.scale, axis=axis),
    }
    tooltip = marks.tooltip(
        points, ("part", "part"), ("flop_per_s", "FLOP/s", ".4~s"), ("flop_per_byte", "FLOP per byte", ".4~r"),
        ("gpu_s", "per pass (s)", ".4~s"),
    )  # fmt: skip
    markers = alt.Chart(points).mark_point(filled=True, opacity=0.8, size=30)
    markers = markers.encode(**channels, color=series.color(), shape=series.shape(), tooltip=tooltip)
    return alt.layer(*(_peak_line(x, y, peaks, rate, channels) if peaks and rate else []), markers)


def _peak_line(x: LogAxis, y: LogAxis, peaks: Peaks, rate: float, channels: dict) -> list[alt.Chart]:
    """The upper limit of all parts as a line, with the peak FLOP/s."""
    corners = sorted({x.low, min(max(rate / peaks.memory_bytes_per_s, x.low), x.high), x.high})
    heights = [min(rate, corner * peaks.memory_bytes_per_s) for corner in corners]
    line = pd.DataFrame({"flop_per_byte": corners, "flop_per_s": heights})
    name = pd.DataFrame({"flop_per_byte": [x.high], "flop_per_s": [rate], "text": [f"{rate / 1e12:g} TFLOP/s"]})
    text = alt.Chart(name).mark_text(align="right", baseline="bottom", dy=-3, fontSize=SMALL)
    return [
        alt.Chart(line).mark_line(color=INK, strokeWidth=1.2, clip=True).encode(**channels),
        text.encode(**channels, text="text:N"),
    ]


def _bytes_panel(points: pd.DataFrame, peaks: Peaks | None, series: Series) -> alt.LayerChart:
    peak, width = peaks.memory_bytes_per_s / 1e9 if peaks else None, WIDTH - NAMES_PX
    x = LogAxis.around([*points["gigabytes_per_s"], *([peak] if peak else [])], width)
    parts = list(dict.fromkeys(points["part"]))
    rate = alt.X("gigabytes_per_s:Q", scale=x.scale, axis=x.axis("least bytes / measured time (GB/s)"))
    y = alt.Y("part:N", scale=alt.Scale(type="point", domain=parts, padding=0.5), axis=marks.name_axis(grid=True))
    tooltip = marks.tooltip(
        points, ("part", "part"), ("gigabytes_per_s", "GB/s at least", marks.DIGITS), ("gpu_s", "per pass (s)", ".4~s")
    )
    markers = alt.Chart(points).mark_point(filled=True, size=26, opacity=0.8)
    layers = [markers.encode(x=rate, y=y, color=series.color(), shape=series.shape(), tooltip=tooltip)]
    if peak:
        peak_line = alt.Chart(pd.DataFrame({"gigabytes_per_s": [peak], "text": [f"{peak:g} GB/s"]})).encode(x=rate)
        text = peak_line.mark_text(align="right", baseline="bottom", dy=-3, fontSize=SMALL)
        layers += [peak_line.mark_rule(color=INK, strokeWidth=1.2), text.encode(y=alt.value(0), text="text:N")]
    return alt.layer(*layers, width=width, height=LINE_PX * len(parts))


def _peak_sentences(points: pd.DataFrame) -> list[str]:
    """A sentence on the peaks for each device and precision of these parts, or that they are not known."""
    pairs = points[["device_name", "precision"]].drop_duplicates().itertuples(index=False)
    return [peaks_in_words(device if known(device) else None, precision) for device, precision in pairs]


def result_roofline(tables: Tables) -> str:
    """The FLOP/s that the parts reach, from the lowest to the highest."""
    points = roofline(tables["runs"], tables["ranges"])
    return f"The parts of the forward pass reach {interval(points['flop_per_s'], rate_in_words)}"


FIGURES = (
    Figure(
        "roofline", "FLOP/s of each part of the forward pass against FLOP per byte, and its bytes per second",
        draw_roofline, result_roofline, tables=("runs", "ranges"),
    ),
)  # fmt: skip
