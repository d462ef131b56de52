"""How every figure looks: fonts; colours, lines and shapes that remain distinct in grey and for the colour-blind;
logarithmic axes with plain numbers, context lengths, and series.

Colours of text and lines are parameters of a chart, since the page shows the same chart on a light and a dark
background.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import altair as alt

from cs336_model.program.variants.values import ATTENTIONS
from kernel_tables.page.colors import BLUE, FAMILIES, GREEN, GREY, LINES, ORANGE, PALE, PURPLE, SKY, VERMILLION
from profile_grid.study.dimensions import CHECKPOINT, COMPILE, PARALLEL, PRECISION

WIDTH = 740  # of a figure, in pixels: a page of paper between its margins, at 100 pixels per inch
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first is the one that vl-convert ships
FONT_SIZE, SMALL, SMALLEST = 11, 9, 8
# The colours that a page may change are parameters of a chart; these are their values on paper.
ON_PAPER = {"ink": "#1d2127", "soft": "#5a626c", "line": "#dfe3e8", "ground": "#ffffff"}
INK, SOFT, GROUND = (alt.ExprRef(name) for name in ("ink", "soft", "ground"))
SERIES_COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, INK, GREY)
NAMES_BY_KIND = (  # the position of a name in its tuple determines its colour and shape in every figure of one kind
    ("small", "medium", "large", "xl", "2.7B", "10B", "xl-2026"),
    PRECISION.values,
    (*ATTENTIONS, "compiled"),
    tuple(map(PARALLEL.name_of, PARALLEL.values)),
    tuple(COMPILE.value_names.values()),
    tuple(CHECKPOINT.value_names.values()),
    ("compute", "memory", "latency", "too small"),
    ("computing attention scores", "computing softmax", "final matmul", "mask and scale"),
)
STYLE_INDEX = {name: index for names in NAMES_BY_KIND for index, name in enumerate(names)}
PARTS = FAMILIES | {  # parts of bars in the order in which they are stacked, with the fields of their PartStyle
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
NUMBER = "abs(datum.value) >= 1e4 ? format(datum.value, '~s') : format(datum.value, '~g')"  # 0.05, 20, 3000, 40M
MIN_TICKS = 3
DENSE_DIGITS = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
# Of the ticks in a decade; the first that give MIN_TICKS are taken.
TICK_DIGITS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), DENSE_DIGITS)
# Of an axis of context lengths: a factor at both ends, and how many may have labels of the usual size.
CONTEXT_MARGIN, MAX_LARGE_LABELS = 1.45, 7
CHARACTER_PX, SYMBOL_PX = 6, 32  # of a legend


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


class PartStyle(NamedTuple):
    """The colour of a part of a bar, and the number of lines along it."""

    color: str
    lines: int


def part_style(part: str) -> PartStyle:
    """The style of a part of a bar; a part that is not in PARTS looks like "unknown"."""
    return PartStyle(*PARTS.get(part, PARTS["unknown"]))


def in_drawing_order(parts: Iterable[str]) -> list[str]:
    """The distinct parts in the order in which they are stacked: that of PARTS, then others by name."""
    positions = {part: position for position, part in enumerate(PARTS)}
    return sorted(set(parts), key=lambda part: (positions.get(part, len(positions)), part))


def fill(color: str, lines: int) -> str | alt.ExprRef:
    """The fill of a bar: a colour with lines in the colour of the background, the same for every length of the bar."""
    if not lines:
        return color
    edges = [edge for line in LINES[lines] for edge in line]  # start and end of each line, as shares of the bar
    bands = zip([0, *edges], [*edges, 1], strict=True)  # of the colour and of the background in turn
    stops = [
        {"offset": offset, "color": "ground" if number % 2 else color}
        for number, band in enumerate(bands)
        for offset in band
    ]
    gradient = json.dumps({"gradient": "linear", "x1": 0, "y1": 0, "x2": 0, "y2": 1, "stops": stops})
    return alt.ExprRef(gradient.replace('"ground"', "ground"))  # without quotes it is the parameter


class SeriesStyles(NamedTuple):
    """The colour, the shape of markers and the dashes of each of several series."""

    colors: list[str | alt.ExprRef]
    shapes: list[str]
    dashes: list[Sequence[int]]


def series_styles(names: Sequence[str]) -> SeriesStyles:
    """The styles of series with these names: those of a name in NAMES_BY_KIND, else the next free ones.

    If two names have the same position there, all series get the next free styles. Until styles repeat, two series have
    at most one of colour, shape and dashes in common.
    """
    known_indices = {name: STYLE_INDEX[name] for name in names if name in STYLE_INDEX}
    if len(set(known_indices.values())) < len(known_indices):
        known_indices = {}  # names of two kinds in one figure
    free = (index for index in count() if index not in known_indices.values())
    indices = [known_indices[name] if name in known_indices else next(free) for name in names]
    rounds = [index // len(SERIES_COLORS) for index in indices]  # how often all colours were used before
    colors = [SERIES_COLORS[index % len(SERIES_COLORS)] for index in indices]
    shapes = [SHAPES[(index + round_) % len(SHAPES)] for index, round_ in zip(indices, rounds, strict=True)]
    return SeriesStyles(colors, shapes, [DASHES[round_ % len(DASHES)] for round_ in rounds])


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis from `low` to `high` with a length in pixels."""

    low: float
    high: float
    length_px: int

    @classmethod
    def around(cls, values: Iterable[float], length_px: int, margin: float = 1.3) -> "LogAxis":
        """The axis that holds the positive values, with this factor as margin at both ends."""
        positive = [float(value) for value in values if value > 0 and math.isfinite(value)] or [1.0]
        return cls(min(positive) / margin, max(positive) * margin, length_px)

    def with_room(self, below_px: float) -> "LogAxis":
        """The axis of the same length with this many pixels below the former low end, for marks that are no values."""
        log_per_px = math.log(self.high / self.low) / max(self.length_px - below_px, 1)
        return LogAxis(self.low * math.exp(-below_px * log_per_px), self.high, self.length_px)

    def at_px(self, pixels: float) -> float:
        """The value at this many pixels from the low end."""
        return self.low * (self.high / self.low) ** (pixels / self.length_px)

    @property
    def scale(self) -> alt.Scale:
        return alt.Scale(type="log", domain=[self.low, self.high], nice=False)

    @property
    def ticks(self) -> list[float]:
        """Powers of ten, and round numbers between them if the axis holds few powers."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = []
        for digits in TICK_DIGITS:
            candidates = [digit * 10.0**decade for decade in decades for digit in digits]
            ticks = [tick for tick in candidates if self.low <= tick <= self.high]
            if len(ticks) >= MIN_TICKS:
                break
        return ticks

    def axis(self, title: str | None) -> alt.Axis:
        """Its axis, with plain numbers instead of powers."""
        return alt.Axis(title=title, values=self.ticks, labelExpr=NUMBER)


@dataclass(frozen=True)
class ContextAxis:
    """A logarithmic axis of context lengths, with a tick at every length in the data."""

    lengths: tuple[int, ...]

    @classmethod
    def of(cls, lengths: Iterable[int]) -> "ContextAxis":
        return cls(tuple(sorted({int(length) for length in lengths})))

    @property
    def low(self) -> float:
        """The left end of the axis."""
        return self.lengths[0] / CONTEXT_MARGIN

    def x(self, field: str = "context_length", title: str | None = "context length (tokens)") -> alt.X:
        """The channel of a column of context lengths."""
        domain = [self.low, self.lengths[-1] * CONTEXT_MARGIN]
        small = {"labelFontSize": SMALL, "labelSeparation": 2}  # an axis leaves out labels that overlap
        options = small if len(self.lengths) > MAX_LARGE_LABELS else {}
        axis = alt.Axis(title=title, values=list(self.lengths), format="d", **options)
        return alt.X(f"{field}:Q", scale=alt.Scale(type="log", base=2, domain=domain, nice=False), axis=axis)

    def is_right(self, length: int) -> bool:
        """Whether a length is in the right half of the axis: its label goes to the left."""
        return length * length > self.lengths[0] * self.lengths[-1]


@dataclass(frozen=True)
class Series:
    """Several series, each with a colour and a shape; `column` holds their names. The legend has at most `width_px`,
    and `hollow` markers if the fill of markers has a meaning of its own."""

    column: str
    names: tuple[str, ...]
    in_legend: bool = True
    hollow: bool = False
    width_px: int = WIDTH

    def color(self) -> alt.Color:
        """The channel of colour: of lines, of filled markers, and of the outline of hollow ones."""
        return alt.Color(f"{self.column}:N", scale=self._scale(series_styles(self.names).colors), legend=self._legend)

    def shape(self) -> alt.Shape:
        """The channel of the shape of markers."""
        return alt.Shape(f"{self.column}:N", scale=self._scale(series_styles(self.names).shapes), legend=self._legend)

    def dash(self) -> alt.StrokeDash:
        """The channel of dashes, which distinguish lines where colours repeat."""
        return alt.StrokeDash(
            f"{self.column}:N", scale=self._scale(series_styles(self.names).dashes), legend=self._legend
        )

    @property
    def _legend(self) -> alt.Legend | None:
        fill = {"symbolFillColor": "transparent"} if self.hollow else {}
        return legend(self.names, self.width_px, **fill) if self.in_legend else None

    def _scale(self, values: Sequence) -> alt.Scale:
        return alt.Scale(domain=list(self.names), range=values)


def legend(names: Sequence[str], width_px: int = WIDTH, **options) -> alt.Legend:
    """A legend below a figure or panel, in as many columns as fit into its width."""
    widths = [len(name) * CHARACTER_PX + SYMBOL_PX for name in names]
    columns = len(names)
    while columns > 1 and sum(max(widths[index::columns]) for index in range(columns)) > width_px:
        columns -= 1
    return alt.Legend(columns=max(columns, 1), **options)
