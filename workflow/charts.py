"""How every figure looks, and how it becomes a file.

    save(titled(chart, "Matrix multiplies take most", "share of GPU time", machine), "results/figures/shares.svg")

Colours are those of Okabe and Ito, which the colour-blind tell apart; a name has the same one in every figure. The font
is the one that vl-convert ships; Arial and Helvetica have the same widths.
"""

import html
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from workflow.text import VARIANTS, describe_variant

WIDTH = 740  # of a figure, in pixels: a page between its margins
INK, SOFT = "#1d2127", "#5a626c"
ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE, GREY, PALE = (
    "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#8c8c8c", "#d9d9d9",
)  # fmt: skip
PARTS = {  # what bars are made of, in the order in which they are stacked
    "gemm": BLUE, "attention": SKY, "softmax": VERMILLION, "normalization": GREEN, "elementwise": ORANGE,
    "reduction": YELLOW, "optimizer": PURPLE, "embedding": "#117733", "communication": "#882255",
    "triton-fused": "#b5651d", "memcpy": GREY, "memset": "#b3b3b3", "unknown": PALE,
    "computing attention scores": BLUE, "mask and scale": ORANGE, "computing softmax": VERMILLION, "final matmul": SKY,
    "parameters": BLUE, "gradients": GREEN, "optimizer state": PURPLE, "activations": VERMILLION,
    "temporary": ORANGE, "other": PALE,
}  # fmt: skip
DARK = (BLUE, VERMILLION, GREEN, "#117733", "#882255", "#b5651d")  # on which text is white
SERIES = [BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, INK, GREY]
PLAIN_NUMBER = "abs(datum.value) >= 1e4 ? format(datum.value, '~s') : format(datum.value, '~g')"  # 0.05, 3000, 40M
THEME = {
    "font": "Liberation Sans, Arial, Helvetica, sans-serif", "background": "white", "aria": False,
    "padding": {"left": 24, "right": 64, "top": 8, "bottom": 8}, "view": {"stroke": None},
    "axis": {"labelColor": INK, "titleColor": INK, "domainColor": SOFT, "tickColor": SOFT, "gridColor": "#dfe3e8",
             "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "labelLimit": 0, "titleLimit": 0},
    "legend": {"orient": "bottom", "title": None, "labelColor": INK, "labelLimit": 0, "labelFontSize": 11,
               "symbolSize": 70, "columnPadding": 24},
    "header": {"labelColor": INK, "labelFontSize": 12, "labelAnchor": "start", "labelLimit": 0, "title": None},
    "title": {"anchor": "start", "color": INK, "fontSize": 12, "fontWeight": "normal", "subtitleColor": SOFT,
              "subtitleFontSize": 11, "limit": 0, "frame": "group", "offset": 10},
    "text": {"color": INK, "fontSize": 10, "limit": 0}, "line": {"strokeWidth": 1.4},
    "point": {"size": 45, "filled": True, "opacity": 1},
}  # fmt: skip


def save(chart: alt.TopLevelMixin, *paths: str | Path) -> None:
    """Writes a chart as .svg or .png, by the end of each path; the same bytes for the same chart on any machine."""
    new: dict[str, str] = {}  # the library goes on numbering clips from figure to figure
    svg = vl_convert.vegalite_to_svg(chart.to_dict() | {"config": THEME})
    # The last digits depend on the processor.
    svg = re.sub(r"\d+\.\d{5,}", lambda match: str(round(float(match[0]), 4)), svg)
    svg = re.sub(r"\bclip\d+", lambda match: new.setdefault(match[0], f"clip{len(new)}"), svg)
    for path in map(Path, paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(vl_convert.svg_to_png(svg, scale=2) if path.suffix == ".png" else svg.encode())


def save_all(charts: dict[str, alt.TopLevelMixin], outputs: Iterable[str]) -> None:
    """Writes each chart to the outputs that have its name and end in .svg or .png; others are tables."""
    paths = [Path(path) for path in outputs if Path(path).suffix in (".svg", ".png")]
    for name in dict.fromkeys(path.stem for path in paths):
        save(charts[name], *(path for path in paths if path.stem == name))


def titled(chart: alt.TopLevelMixin, result: str, quantity: str, *notes: str) -> alt.VConcatChart:
    """The chart between its result in bold with the quantity below, and notes, such as the machine, at its foot."""
    texts = [line for note in notes for line in textwrap.wrap(html.unescape(note.replace("\\", "")), 130)]
    foot = alt.TitleParams(texts, orient="bottom", fontSize=9, color=SOFT, lineHeight=12, frame="bounds")
    result = re.sub(r"(?<=\d) ", "\N{NO-BREAK SPACE}", result)  # before a unit
    head = alt.TitleParams(textwrap.wrap(result, 60), subtitle=quantity, fontSize=15, fontWeight="bold", frame="bounds")
    inner = alt.vconcat(chart, title=foot).resolve_scale(color="independent", shape="independent")  # legends above
    return alt.vconcat(inner, title=head)


def text_chart(reason: str) -> alt.Chart:
    """A figure that says why nothing is drawn."""
    text = alt.Chart(pd.DataFrame({"text": [reason]})).mark_text(fontSize=12, align="left")
    return text.encode(text="text", x=alt.value(0)).properties(width=WIDTH, height=60)


def label_axis(rows: pd.DataFrame, column: str = "label") -> alt.Y:
    """Rows of bars by a column of names, in the order of the frame."""
    return alt.Y(f"{column}:N", title=None, sort=list(dict.fromkeys(rows[column])))


def log_axis(channel: type, column: str, title: str | None) -> alt.X | alt.Y:
    """A logarithmic axis with the ticks 1, 2 and 5 of each decade; `channel` is alt.X or alt.Y."""
    ticks = [digit * 10.0**power for power in range(-6, 9) for digit in (1, 2, 5)]
    axis, scale = alt.Axis(labelExpr=PLAIN_NUMBER, values=ticks), alt.Scale(type="log", nice=False, padding=10)
    return channel(f"{column}:Q", title=title, axis=axis, scale=scale)


def draw_roofline(points: pd.DataFrame, peaks: dict[str, float], bytes_per_s: float, **looks) -> alt.LayerChart:
    """Points by `intensity` and `tera` (FLOP per byte, TFLOP/s) with these looks, below what the device can do: a line
    for each known peak (FLOP/s by precision), which rises with the bytes per second of its memory."""
    x, y = log_axis(alt.X, "intensity", "FLOP per byte"), log_axis(alt.Y, "tera", "TFLOP/s")
    layers = [alt.Chart(points).mark_point(filled=True, opacity=0.8).encode(x=x, y=y, **looks)]
    for kind, peak in peaks.items() if bytes_per_s > 0 else ():
        ridge, (low, high) = peak / bytes_per_s, points["intensity"].agg(["min", "max"])
        roof = pd.DataFrame({"intensity": sorted({low / 2, ridge, 2 * max(high, ridge)})})
        roof["tera"] = np.minimum(roof["intensity"] * bytes_per_s, peak) / 1e12
        text = f"{peak / 1e12:g} TFLOP/s in {kind}, {bytes_per_s / 1e12:g} TB/s (data sheet)"
        base = alt.Chart(roof).encode(x="intensity:Q", y="tera:Q")
        end = alt.Chart(roof[-1:].assign(text=text)).encode(x="intensity:Q", y="tera:Q", text="text")
        layers += [base.mark_line(color=INK), end.mark_text(align="right", dy=-8)] if peak > 0 else []
    return alt.layer(*layers)


def label_rows(rows: pd.DataFrame, but: Iterable[str] = ("mode",)) -> pd.DataFrame:
    """The rows with `label`, "small · 512 · bf16": model, context and what varies and is no default, but not `but`."""
    names = [key for key in ("model", "context_length") if key not in but]
    keys = [key for key in VARIANTS if key not in but and rows[key].nunique() > 1]
    texts = [[*(str(row[name]) for name in names), *describe_variant(row, keys)] for row in rows.to_dict("records")]
    return rows.assign(label=list(map(" · ".join, texts)))


def part_color(rows: pd.DataFrame, column: str) -> alt.Color:
    names = sort_parts(rows[column])
    scale = alt.Scale(domain=names, range=[PARTS.get(name, PALE) for name in names])
    return alt.Color(f"{column}:N", scale=scale, title=None, legend=_legend(names))


def _legend(names: list[str], width: int = WIDTH) -> alt.Legend:
    """A legend in as many columns as the width of a figure or panel has."""
    columns = int(width // (7.2 * max(map(len, names), default=0) + 50))
    return alt.Legend(columns=max(1, columns), symbolLimit=0, columnPadding=26)


def sort_parts(names: Iterable[str]) -> list[str]:
    """The distinct names in the order in which they are stacked; unlisted ones last."""
    known = list(PARTS)
    return sorted(dict.fromkeys(names), key=lambda name: known.index(name) if name in known else len(known))


def series_color(rows: pd.DataFrame, column: str, width: int = WIDTH) -> alt.Color:
    """The colours of lines and points by a column of names, such as models; `width` is that of the legend."""
    return alt.Color(f"{column}:N", title=None, **_series(rows[column], SERIES, width))


def series_shape(rows: pd.DataFrame, column: str, width: int = WIDTH) -> alt.Shape:
    """Their shapes, so that grey print tells them apart."""
    shapes = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left", "triangle-right"]
    return alt.Shape(f"{column}:N", title=None, **_series(rows[column], shapes, width))


def _series(column: pd.Series, looks: list[str], width: int) -> dict:
    names, kinds = list(dict.fromkeys(column)), [  # names of one kind have the same look in every figure
        ["small", "medium", "large", "xl", "2.7B", "10B"], ["fp32", "tf32", "bf16", "fp16", "bf16-weights"],
        ["eager", "math", "flash", "efficient", "cudnn"], ["off", "on", "attention"],
    ]  # fmt: skip
    kind = next((kind for kind in kinds if set(names) <= set(kind)), names)
    scale = alt.Scale(domain=names, range=[looks[kind.index(name) % len(looks)] for name in names])
    return {"scale": scale, "legend": _legend(names, width)}
