"""The ratios of all cells with their intervals, as a figure: a line per cell, a panel per mode."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.page.colors import BLUE, GREY, PALE, VERMILLION
from profile_grid.comparing.cells import FASTER, NO_EVIDENCE, SLOWER, TOO_FEW
from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import row
from profile_grid.figures.scales import Log, legend
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import counted
from profile_grid.study.dimensions import BY_KEY, MODE
from profile_grid.tables.apart import shown_dimensions

STYLES = {  # of a verdict: colour and shape
    SLOWER: (VERMILLION, "triangle-right"), FASTER: (BLUE, "triangle-left"), NO_EVIDENCE: (GREY, "circle"),
    TOO_FEW: (PALE, "circle"),
}  # fmt: skip
LINE_PX, AXIS_PX, GAP_PX, CHARACTER_PX = 15, 40, 14, 6
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, float("inf"))
MOST_LINES = 60  # of one panel
NOTHING = "No cell has times on both sides."
LEAST_REACH, MOST, MARGIN = 1.02, 0.75, 1.005  # of the axis: at least, for the share of the cells, and beyond that


def draw(tables: Tables) -> Drawing:
    """Per mode a panel: a line per cell, its ratio and the interval; a rule where nothing changed."""
    cells = tables["cells"]
    known = cells[cells["ratio"].notna()]
    if known.empty:
        return Drawing(reason=NOTHING)
    shown = [key for key in shown_dimensions(cells, ("model", "context_length")) if key != MODE.key]
    known = known.assign(cell=[_label(one, shown) for one in known.to_dict("records")])
    kept, notes = _fitting(known)
    reach = _reach(kept)
    axis = Log(1 / reach, reach, WIDTH // 3)
    ends = kept[["ratio", "ratio_low", "ratio_high"]]
    beyond = ((ends < axis.low) | (ends > axis.high)).any(axis=1)
    if beyond.any():
        notes += (f"Beyond the axis: {counted(beyond.sum(), 'cell')}. The table has their figures.",)
    drawn = {f"{name}_drawn": kept[name].clip(axis.low, axis.high) for name in ("ratio_low", "ratio_high")}
    kept = kept.assign(**drawn, ratio_drawn=kept["ratio"].where(kept["ratio"].between(axis.low, axis.high)))
    lines = list(dict.fromkeys(kept["cell"]))
    modes = list(dict.fromkeys(kept["mode"]))
    room = CHARACTER_PX * max(map(len, lines))
    width = max(120, (WIDTH - AXIS_PX - room) // len(modes) - GAP_PX)
    panels = [_panel(kept[kept["mode"] == mode], mode, axis, lines, width, mode == modes[0]) for mode in modes]
    return Drawing(row(*panels, spacing=GAP_PX), notes)


def caption(tables: Tables) -> str:
    """What the marks are."""
    return (
        "Time of a step after ÷ before: the median over processes, and the interval from resampling processes and"
        " steps. Right of the rule is slower; colour and shape tell the verdict."
    )


FIGURE = Figure("ratios", "Time after ÷ before", draw, caption, tables=("runs", "cells"))


def _label(row: dict, shown: list[str]) -> str:
    return " · ".join(BY_KEY[key].name_of(row[key]) for key in shown)


def _fitting(cells: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The cells of as many lines as a panel has room for, those whose ratio is farthest from 1, in their order."""
    far = (cells["ratio"] - 1).abs().groupby(cells["cell"]).max().nlargest(MOST_LINES).index
    kept = cells[cells["cell"].isin(far)]
    left = len(cells) - len(kept)
    return kept, (f"Not drawn, for want of room: {left} cells that changed less. The table has them.",) if left else ()


def _reach(cells: pd.DataFrame) -> float:
    """The upper end of the axis, whose lower one is 1 over it: all that was told, and what most of the cells need."""
    ends = cells[["ratio", "ratio_low", "ratio_high"]].astype("float64")
    needed = pd.concat([ends, 1 / ends], axis=1).max(axis=1)
    told = needed[cells["verdict"].isin((SLOWER, FASTER))]
    return max(LEAST_REACH, needed.quantile(MOST), *told) * MARGIN


def _panel(cells: pd.DataFrame, mode: str, x: Log, lines: list[str], width: int, first: bool) -> alt.LayerChart:
    height = LINE_PX * len(lines)
    names = marks.name_axis(labels=first, domain=first)
    y = alt.Y("cell:N", scale=alt.Scale(domain=lines), sort=lines, axis=names)
    axis = alt.Axis(title=None, values=_ticks(x), format="~g")
    low, middle = (alt.X(f"{name}_drawn:Q", scale=x.scale, axis=axis) for name in ("ratio_low", "ratio"))
    base = alt.Chart(cells).encode(y=y, color=_verdicts(0))
    seen = marks.tooltip(
        cells, ("ratio", "after ÷ before", marks.DIGITS), ("ratio_low", "from", marks.DIGITS),
        ("ratio_high", "to", marks.DIGITS), ("verdict", "verdict"),
    )  # fmt: skip
    same = alt.Chart(pd.DataFrame({"ratio_drawn": [1.0]})).mark_rule(color=GREY).encode(x=middle)
    points = base.mark_point(filled=True).encode(x=middle, shape=_verdicts(1), tooltip=seen)
    layers = alt.layer(same, base.mark_rule().encode(x=low, x2="ratio_high_drawn"), points)
    return layers.properties(title=marks.panel_title(MODE.name_of(mode)), width=width, height=height)


def _ticks(x: Log) -> list[float]:
    """1 and as far to either side of it, in a round number of percent."""
    step = next(step for step in STEPS if step >= (x.high - 1) / 3)
    return [tick for tick in (1 - 2 * step, 1 - step, 1, 1 + step, 1 + 2 * step) if x.low <= tick <= x.high]


def _verdicts(style: int) -> alt.Color | alt.Shape:
    channel = (alt.Color, alt.Shape)[style]
    scale = alt.Scale(domain=list(STYLES), range=[one[style] for one in STYLES.values()])
    return channel("verdict:N", scale=scale, legend=legend(list(STYLES)))
