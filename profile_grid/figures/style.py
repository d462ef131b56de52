"""How every figure looks: colours, hatches and markers told apart by the colour-blind and in grey, and frames."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

# Okabe & Ito, Color Universal Design (2008)
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#8c8c8c"
SERIES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FAMILIES = {  # family of kernel classes: colour and hatch
    "gemm": (BLUE, ""),
    "attention": (SKY, ""),
    "softmax": (VERMILLION, ""),
    "normalization": (GREEN, ""),
    "elementwise": (ORANGE, ""),
    "reduction": (YELLOW, ""),
    "optimizer": (PURPLE, ""),
    "embedding": (GREEN, "///"),
    "random": (SKY, "///"),
    "sort": (BLUE, "///"),
    "communication": (VERMILLION, "///"),
    "triton-fused": (ORANGE, "///"),
    "graph": (PURPLE, "///"),
    "memcpy": (GREY, ""),
    "memset": (GREY, "///"),
    "other": ("#d9d9d9", ""),
    "unknown": ("#d9d9d9", "xxx"),
}
PHASES = {
    "forward": (BLUE, ""),
    "loss": (YELLOW, "..."),
    "backward": (VERMILLION, "///"),
    "optimizer": (GREEN, "\\\\\\"),
}
UNKNOWN_FAMILY = FAMILIES["unknown"]
UNHAPPY = {"out_of_memory": "out of memory", "incomplete": "capture incomplete", "missing": "not measured"}
RC = {
    "font.size": 8, "axes.titlesize": 8.5, "axes.titlelocation": "left", "axes.labelsize": 8, "legend.fontsize": 7.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "hatch.linewidth": 0.6, "legend.frameon": False,
    "svg.fonttype": "none", "svg.hashsalt": "profile_grid", "text.parse_math": False, "figure.dpi": 100,
    "lines.linewidth": 1.2, "lines.markersize": 5, "errorbar.capsize": 2, "axes.unicode_minus": True,
}  # fmt: skip
WIDTH_IN = 7.4  # of a page of paper between its margins
LINE_CHARACTERS = 136  # of small text in that width


@contextmanager
def drawing() -> Iterator[None]:
    """The settings under which figures are made and saved; names are never read as mathematics."""
    with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **RC}):
        yield


def panels(columns: int, rows: int = 1, height_in: float = 2.6, **kwargs) -> tuple[Figure, list[list[Axes]]]:
    """A figure as wide as a page, and its axes by row and column."""
    figure = Figure(figsize=(WIDTH_IN, height_in * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **kwargs).tolist()


def framed(figure: Figure, title: str, machine: str, notes: Iterable[str] = (), monospace: bool = False) -> Figure:
    """The figure with its title and machine above, and its notes below, wrapped and never cut."""
    height = figure.get_figheight()
    subtitle = textwrap.fill(machine, 110)
    figure.text(0.012, 1 + 0.06 / height, subtitle, fontsize=7.5, color="#444444", va="bottom")
    lift = 0.10 + 0.13 * (subtitle.count("\n") + 1)
    figure.text(0.012, 1 + lift / height, title, fontsize=10.5, fontweight="bold", va="bottom")
    indent = "    " if monospace else ""
    lines = [line for note in notes for line in wrapped_text(note, LINE_CHARACTERS, indent)]
    if lines:
        family = "DejaVu Sans Mono" if monospace else "DejaVu Sans"
        size = 5.4 if monospace else 6.6
        text = "\n".join(lines)
        below = -(0.06 + _legend_height_in(figure)) / height
        figure.text(0.012, below, text, fontsize=size, family=family, color="#333333", va="top")
    return figure


def wrapped_text(text: str, width: int, indent: str = "") -> list[str]:
    """The text in lines of at most `width` characters, all of it: broken at spaces, within longer words anywhere."""
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) or [""]


def legend_below(figure: Figure, handles: Sequence, columns: int) -> None:
    """A legend under the figure, where `framed` leaves room for it."""
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": figure.transFigure}
    legend = figure.legend(handles=handles, ncols=min(columns, len(handles)), borderaxespad=0.2, **place)
    legend.set_in_layout(False)  # else the axes would make room for it inside the figure
    figure.legend_lines = math.ceil(len(handles) / columns)


def _legend_height_in(figure: Figure) -> float:
    lines = getattr(figure, "legend_lines", 0)
    return 0.1 + 0.155 * lines if lines else 0.0


def without_data(title: str, machine: str, reason: str, notes: Iterable[str] = ()) -> Figure:
    """A figure that says why there is nothing to draw."""
    figure, ((axes,),) = panels(1, height_in=1.2)
    axes.set_axis_off()
    axes.text(0.5, 0.5, textwrap.fill(reason, 90), ha="center", va="center", fontsize=9, transform=axes.transAxes)
    return framed(figure, title, machine, notes)


def family_style(family: str) -> tuple[str, str]:
    """Colour and hatch of a family of kernel classes; one that has none of its own looks like "unknown"."""
    return FAMILIES.get(family, UNKNOWN_FAMILY)


def in_drawing_order(families: Iterable[str]) -> list[str]:
    """Families in the order in which they are stacked, matrix multiplies first."""
    order = {family: position for position, family in enumerate(FAMILIES)}
    return sorted(set(families), key=lambda family: (order.get(family, len(order)), family))


def series_style(position: int) -> dict:
    """Colour, marker and line style of one of several lines; all three differ before any repeats."""
    line = ("-", "--", ":", "-.")[position // len(SERIES) % 4]
    return {"color": SERIES[position % len(SERIES)], "marker": MARKERS[position % len(MARKERS)], "linestyle": line}


def log_axis(axis, values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, never 10^x; ticks between the decades where the values span little."""
    finite = [value for value in values if value > 0]
    narrow = bool(finite) and max(finite) / min(finite) < 30
    axis.axes.set_xscale("log") if axis.axis_name == "x" else axis.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if narrow else (1,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_formatter(NullFormatter())


def context_axis(axes: Axes, contexts: Sequence[int]) -> None:
    """A context-length axis, logarithmic, with a tick at every length that was measured."""
    axes.set_xscale("log", base=2)
    axes.set_xlabel("context length (tokens)")
    ticks = sorted(set(contexts))
    axes.xaxis.set_major_locator(mpl.ticker.FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    if ticks:
        axes.set_xlim(min(ticks) / 1.45, max(ticks) * 1.45)


def plain(value: float) -> str:
    """A tick: 0.05, 20, 3k, 40M; SI prefixes from ten thousand on."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if prefix == "k" else 1):
            return f"{value / size:g} {prefix}"
    return f"{value:g}"
