"""Figure of the roofline: FLOP/s and bytes/s of each part of the forward pass, against the peaks of the device."""

from __future__ import annotations

import altair as alt
import pandas as pd

from cs336_model.arithmetic.flops import forward_bytes, forward_flops
from cs336_model.program.variants.values import ELEMENT_BYTES
from kernel_tables.attribution.path_text import innermost
from kernel_tables.page.colors import BLUE, GREY
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, row
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.shown import leanest_runs, models_in_order, with_dimensions, without_figures
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import INK, SMALL
from profile_grid.gpu_peaks import Peaks, peaks_in_words, peaks_of
from profile_grid.quantities import interval, known, significant
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.ideal import shape_of_run
from profile_grid.tables.names import FORWARD

SHOWN = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
COLUMNS = ("run", "device_name", "part", "flops", "bytes", "gpu_s")
LEFT_PX, RIGHT_PX, HEIGHT_PX = 300, 200, 290
SMALLEST_MARKER, LARGER_MARKER = 12, 18


def roofline(runs: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """One row per part of the forward pass: flops and bytes from the shapes, gpu_s measured, flop_per_s, bytes_per_s,
    flop_per_byte. Only inference runs whose counted FLOPs are those of the shapes: other people's models have other
    parts. FLOPs are absent where the shapes give none."""
    gpu_s = _gpu_seconds_by_part(ranges)
    rows = []
    for run in leanest_runs(runs[runs[CAPTURE.status_column] == COMPLETE]).to_dict("records"):
        shape, own_s = shape_of_run(run), gpu_s.get(run["run"], {})
        if shape is None or not own_s:
            continue
        flops, moved = forward_flops(shape), forward_bytes(shape, ELEMENT_BYTES[run["precision"]])
        rows += [
            (run["run"], run["device_name"], part, flops.get(part), moved[part], own_s[part])
            for part in moved
            if own_s.get(part, 0) > 0
        ]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(("flops", "bytes", "gpu_s"), "float64"))
    rates = table.assign(
        flop_per_s=table["flops"] / table["gpu_s"],
        bytes_per_s=table["bytes"] / table["gpu_s"],
        flop_per_byte=table["flops"] / table["bytes"],
    )
    return with_dimensions(rates, runs)


def _gpu_seconds_by_part(ranges: pd.DataFrame) -> dict[str, dict[str, float]]:
    """By run, the seconds per forward pass of every innermost range name, whatever is nested in it included."""
    forward = ranges[ranges["phase"] == FORWARD]
    keys = [forward["run"], forward["range"].map(innermost)]
    total_ns = forward["gpu_time_ns"].groupby(keys, observed=True).sum()
    steps = forward["step"].groupby(forward["run"], observed=True).nunique()
    found: dict[str, dict[str, float]] = {}
    for (run, name), time_ns in total_ns.items():
        found.setdefault(run, {})[name] = time_ns / steps[run] / 1e9
    return found


def draw_roofline(tables: Tables) -> Drawing:
    """FLOP/s against FLOP per byte for the parts whose FLOPs the shapes give, and bytes/s for all, with the peaks.

    The peak is that of the precision in which the runs of a panel ran."""
    runs = tables["runs"]
    points = roofline(runs, tables["ranges"])
    if points.empty:
        reason = "No run has both kernels by part of the model and FLOPs from its shapes."
        missing = marks.missing_notes(without_figures(runs, CAPTURE))
        return Drawing(reason=reason, notes=tuple(missing))
    with_flops = points.dropna(subset="flops")
    series = Series("part", tuple(dict.fromkeys(with_flops["part"])))
    sizes = {model: SMALLEST_MARKER + LARGER_MARKER * n for n, model in enumerate(models_in_order(runs))}
    points = points.assign(size=points["model"].map(sizes), gigabytes_per_s=points["bytes_per_s"] / 1e9)
    groups, left_out = split(runs[runs["run"].isin(points["run"])], SHOWN)

    def panels(group: Group) -> Spec:
        own = group.of(points).drop(columns="mode")
        peaks, precision = peaks_of(own["device_name"].iloc[0]), own["precision"].iloc[0]
        rate = peaks.flop_per_s(precision) if peaks else None
        return row(_flops_panel(own.dropna(subset="flops"), peaks, rate, series), _bytes_panel(own, peaks), spacing=24)

    note = (
        "One marker per model and context; larger markers are larger models. FLOPs are those of the matrix products "
        "and the softmax; bytes are the least that a part can move (each operand read once, each result written once), "
        "so a part that is split into many kernels lies lower than its kernels do."
    )
    return Drawing(stacked(groups, panels), (note, *_peaks_told(points), *left_out))


def _flops_panel(points: pd.DataFrame, peaks: Peaks | None, rate: float | None, series: Series) -> alt.LayerChart:
    x = Log.around(points["flop_per_byte"], LEFT_PX, margin=3)
    y = Log.around([*points["flop_per_s"], *([rate] if rate else [])], HEIGHT_PX, margin=1.6)
    place = {
        "x": alt.X("flop_per_byte:Q", scale=x.scale, axis=x.axis("FLOP per byte, from the shapes")),
        "y": alt.Y("flop_per_s:Q", scale=y.scale, axis=y.axis("FLOP/s reached")),
    }
    markers = alt.Chart(points).mark_point(filled=True, opacity=0.75).encode(
        **place, color=series.color(), shape=series.shape(), size=alt.Size("size:Q", scale=None, legend=None),
        tooltip=marks.tooltip(
            points, ("part", "part"), ("flop_per_s", "FLOP/s", ".4~s"), ("flop_per_byte", "FLOP per byte", ".4~r"),
            ("gpu_s", "per pass (s)", ".4~s"),
        ),
    )  # fmt: skip
    layers = _roof(x, y, peaks, rate, place) if peaks and rate else []
    return alt.layer(*layers, markers).properties(width=LEFT_PX, height=HEIGHT_PX)


def _roof(x: Log, y: Log, peaks: Peaks, rate: float, place: dict) -> list[alt.Chart]:
    """The line that no part can be above, and its height in words."""
    corners = sorted({x.low, min(max(rate / peaks.memory_bytes_per_s, x.low), x.high), x.high})
    line = pd.DataFrame(
        {"flop_per_byte": corners, "flop_per_s": [min(rate, at * peaks.memory_bytes_per_s) for at in corners]}
    )
    name = pd.DataFrame({"flop_per_byte": [x.high], "flop_per_s": [rate], "text": [f"{rate / 1e12:g} TFLOP/s"]})
    text = alt.Chart(name).mark_text(align="right", baseline="bottom", dy=-3, fontSize=SMALL)
    return [
        alt.Chart(line).mark_line(color=INK, strokeWidth=1.2, clip=True).encode(**place),
        text.encode(**place, text="text:N"),
    ]


def _bytes_panel(points: pd.DataFrame, peaks: Peaks | None) -> alt.LayerChart:
    peak = peaks.memory_bytes_per_s / 1e9 if peaks else None
    x = Log.around([*points["gigabytes_per_s"], *([peak] if peak else [])], RIGHT_PX)
    parts = list(dict.fromkeys(points["part"]))
    rate = alt.X("gigabytes_per_s:Q", scale=x.scale, axis=x.axis("least bytes / measured time (GB/s)"))
    axis = alt.Axis(title=None, grid=True, ticks=False, labelPadding=6)
    y = alt.Y("part:N", scale=alt.Scale(type="point", domain=parts, padding=0.5), axis=axis)
    ends = points.groupby("part", sort=False)["gigabytes_per_s"].agg(["min", "max"]).reset_index()
    ends = ends.rename(columns={"min": "gigabytes_per_s", "max": "most"})
    seen = marks.tooltip(
        points, ("part", "part"), ("gigabytes_per_s", "GB/s at least", marks.DIGITS), ("gpu_s", "per pass (s)", ".4~s")
    )
    layers = [
        alt.Chart(ends).mark_rule(color=GREY).encode(x=rate, x2="most", y=y),
        alt.Chart(points).mark_point(filled=True, size=22, color=BLUE, opacity=0.75).encode(x=rate, y=y, tooltip=seen),
    ]
    if peak:
        roof = alt.Chart(pd.DataFrame({"gigabytes_per_s": [peak], "text": [f"{peak:g} GB/s"]})).encode(x=rate)
        text = roof.mark_text(align="right", baseline="bottom", dy=-3, fontSize=SMALL)
        layers += [roof.mark_rule(color=INK, strokeWidth=1.2), text.encode(y=alt.value(0), text="text:N")]
    return alt.layer(*layers).properties(width=RIGHT_PX, height=HEIGHT_PX)


def _peaks_told(points: pd.DataFrame) -> list[str]:
    """A sentence on the peaks for each precision in which these parts ran."""
    device = points["device_name"].iloc[0]
    precisions = dict.fromkeys(points["precision"])
    return list(dict.fromkeys(peaks_in_words(device if known(device) else None, one) for one in precisions))


def caption_roofline(tables: Tables) -> str:
    """What the parts reach, and the peaks that they are drawn against."""
    points = roofline(tables["runs"], tables["ranges"])
    if points.empty:
        return "No run has both kernels by part of the model and FLOPs from its shapes."
    reached = f"The parts reach {interval(points['flop_per_s'] / 1e12, significant)} TFLOP/s."
    return " ".join([reached, *_peaks_told(points)])


FIGURES = (
    Figure(
        "roofline", "Roofline of the forward pass by part of the model", draw_roofline, caption_roofline,
        tables=("runs", "ranges"),
    ),
)  # fmt: skip
