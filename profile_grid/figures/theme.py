"""How every figure looks: fonts, and colours, lines and shapes that remain distinct to the colour-blind and in grey.

Colours of text and lines are parameters of a chart, since the page draws the same chart on a light and a dark ground.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import count

import altair as alt

from cs336_model.program.variants.values import OWN_ATTENTIONS, PYTORCH_ATTENTIONS
from kernel_tables.page.colors import BLUE, FAMILIES, GREEN, GREY, LINES, ORANGE, PALE, PURPLE, SKY, VERMILLION
from profile_grid.study.dimensions import CHECKPOINT, COMPILE, PARALLEL, PRECISION

WIDTH = 740  # of a figure, in pixels: a page of paper between its margins, at 100 pixels per inch
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first is the one that vl-convert ships
FONT_SIZE, SMALL, SMALLEST = 11, 9, 8
ON_PAPER = {"ink": "#1d2127", "soft": "#5a626c", "line": "#dfe3e8", "ground": "#ffffff"}
INK, SOFT, LINE, GROUND = (alt.ExprRef(name) for name in ON_PAPER)
SERIES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, INK, GREY)
KINDS = (  # what has the colour and shape of its place in its list, in every figure
    ("small", "medium", "large", "xl", "2.7B", "10B", "xl-2026"),
    PRECISION.values,
    (*PYTORCH_ATTENTIONS, "compiled", *OWN_ATTENTIONS),
    tuple(map(PARALLEL.name_of, PARALLEL.values)),
    tuple(COMPILE.names.values()),
    tuple(CHECKPOINT.names.values()),
    ("compute", "memory", "latency", "too small"),
    ("computing attention scores", "computing softmax", "final matmul", "mask and scale"),
)
PLACES = {name: place for kind in KINDS for place, name in enumerate(kind)}
PARTS = FAMILIES | {  # of a bar, in the order in which they are stacked: colour, and how many lines along it
    "parameters": (BLUE, 0),
    "optimizer state": (PURPLE, 1),
    "gradients": (GREEN, 0),
    "activations": (VERMILLION, 2),
    "temporary": (ORANGE, 0),
    "communication": (SKY, 2),
    "workspace": (GREY, 1),
    "data": (PALE, 0),
    "idle power while waiting": (GREY, 1),
    "idle power while working": (PALE, 0),
    "above idle power": (ORANGE, 0),
}
CROSS = "M-1,-1L1,1M1,-1L-1,1"
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left", "triangle-right")
DASHES = ([1, 0], [5, 3], [1, 2], [6, 2, 1, 2])


def parameters() -> list[dict]:
    """The colours that a page may change, with their values on paper."""
    return [{"name": name, "value": value} for name, value in ON_PAPER.items()]


def config() -> dict:
    """The configuration of every chart, as Vega-Lite reads it."""
    ink, soft, line = ({"expr": name} for name in ("ink", "soft", "line"))
    return {
        "font": FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {
            "labelColor": ink, "titleColor": ink, "domainColor": soft, "tickColor": soft, "gridColor": line,
            "labelFontSize": FONT_SIZE, "titleFontSize": FONT_SIZE, "titleFontWeight": "normal", "labelLimit": 0,
            "titleLimit": 0, "tickSize": 4, "titlePadding": 6, "labelSeparation": 6,
        },
        "legend": {
            "orient": "bottom", "title": None, "labelColor": ink, "labelFontSize": FONT_SIZE, "labelLimit": 0,
            "symbolSize": 60, "symbolOpacity": 1, "columnPadding": 14,
        },
        "title": {
            "anchor": "start", "color": ink, "fontSize": FONT_SIZE, "fontWeight": "normal", "subtitleColor": soft,
            "subtitleFontSize": SMALL + 1, "limit": 0, "offset": 6,
        },
        "point": {"opacity": 1, "size": 45},
        "text": {"color": ink, "fontSize": SMALL, "limit": 0},
        "rule": {"strokeWidth": 1, "opacity": 1},
        "line": {"strokeWidth": 1.2},
    }  # fmt: skip


def part_style(part: str) -> tuple[str, int]:
    """Colour and lines of a part of a bar; a part that is not listed looks like "unknown"."""
    return PARTS.get(part, PARTS["unknown"])


def in_drawing_order(parts: Iterable[str]) -> list[str]:
    """Parts in the order in which they are stacked: matrix multiplies, parameters first."""
    order = {part: position for position, part in enumerate(PARTS)}
    return sorted(set(parts), key=lambda part: (order.get(part, len(order)), part))


def fill(color: str, lines: int) -> str | alt.ExprRef:
    """The fill of a bar: a colour with lines in the colour of the ground, independent of the bar's length."""
    if not lines:
        return color
    edges = [edge for line in LINES[lines] for edge in line]
    ends = zip([0, *edges], [*edges, 1], strict=True)
    stops = [
        {"offset": offset, "color": "ground" if band % 2 else color}
        for band, pair in enumerate(ends)
        for offset in pair
    ]
    gradient = json.dumps({"gradient": "linear", "x1": 0, "y1": 0, "x2": 0, "y2": 1, "stops": stops})
    return alt.ExprRef(gradient.replace('"ground"', "ground"))  # the parameter, not a word


def series_styles(names: Sequence[str]) -> tuple[list, list[str], list[Sequence[int]]]:
    """Colours, shapes and dashes of series with these names: those of a name in KINDS, else the next free ones.

    Until styles repeat, two series share at most one of the three.
    """
    known_indices = [PLACES.get(name) for name in names]
    if len({index for index in known_indices if index is not None}) < sum(index is not None for index in known_indices):
        known_indices = [None] * len(names)  # two kinds in one figure
    free = (index for index in count() if index not in known_indices)
    indices = [next(free) if index is None else index for index in known_indices]
    colors = [SERIES[n % len(SERIES)] for n in indices]
    shapes = [SHAPES[(n + n // len(SERIES)) % len(SHAPES)] for n in indices]
    return colors, shapes, [DASHES[n // len(SERIES) % len(DASHES)] for n in indices]
