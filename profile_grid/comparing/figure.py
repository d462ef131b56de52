"""The figure of a comparison: the ratios of runs with their intervals, a line per configuration, a panel per mode."""

import altair as alt
import pandas as pd

from kernel_tables.page.colors import BLUE, GREY, PALE, VERMILLION
from profile_grid.comparing.cells import TOO_FEW
from profile_grid.figures import marks, panels
from profile_grid.figures.panels import Drawing, Figure, Tables
from profile_grid.figures.theme import SMALL, WIDTH, LogAxis, legend
from profile_grid.quantities import counted, interval, percent, significant
from profile_grid.study.dimensions import BY_KEY, MODE
from profile_grid.tables.evidence import FASTER, SLOWER, UNCLEAR
from profile_grid.tables.pivoting import shown_dimensions

COLORS = {SLOWER: VERMILLION, FASTER: BLUE, UNCLEAR: GREY, TOO_FEW: PALE}
SHAPES = {SLOWER: "triangle-right", FASTER: "triangle-left", UNCLEAR: "circle", TOO_FEW: "circle"}
LINE_PX, AXIS_PX, GAP_PX, CHARACTER_PX = 15, 40, 14, 6
TICK_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, float("inf"))  # possible distances of ticks
MAX_LINES = 60  # of one panel
NO_CELLS = "No run has times on both sides."
MEANING = (
    "The geometric mean over processes, and its interval by Welch's test. Right of the rule is slower;"
    " colour and shape are the verdict."
)
MIN_REACH = 1.02  # the least upper end of the axis
FITTING_SHARE = 0.75  # of the intervals: at least so many are entirely within the axis
MARGIN = 1.005  # factor between the largest value and the end of the axis


def draw(tables: Tables) -> Drawing:
    """A panel per mode with a line per configuration: its ratio and the interval; a rule at 1, for no change."""
    cells = tables["cells"]
    timed = cells[cells["ratio"].notna()]
    if timed.empty:
        return Drawing(reason=NO_CELLS)
    keys = shown_dimensions(cells, ("model", "context_length"), hidden=(MODE.key,))
    timed = timed.assign(line=[_label(row, keys) for row in timed.to_dict("records")])
    drawn, notes = _with_room(timed)
    reach = _reach(drawn)
    axis = LogAxis(1 / reach, reach, WIDTH // 3)
    clipped = {f"{name}_drawn": drawn[name].clip(axis.low, axis.high) for name in ("ratio_low", "ratio", "ratio_high")}
    drawn = drawn.assign(**clipped)
    if (drawn["ratio_high"] > axis.high).any() or (drawn["ratio_low"] < axis.low).any():
        notes += ("A grey triangle: the interval goes on beyond the axis. The table has its end.",)
    lines, modes = list(dict.fromkeys(drawn["line"])), list(dict.fromkeys(drawn["mode"]))
    labels_px = CHARACTER_PX * max(map(len, lines))
    width = max(120, (WIDTH - AXIS_PX - labels_px) // len(modes) - GAP_PX)
    mode_panels = [
        _panel(drawn[drawn["mode"] == mode], mode, axis, lines, width, has_names=(mode == modes[0])) for mode in modes
    ]
    return Drawing(panels.row(*mode_panels, spacing=GAP_PX), (MEANING, *notes))


def result(tables: Tables) -> str:
    """How many runs changed, and how much; empty if none was tested."""
    cells = tables["cells"]
    tested = cells[cells["verdict"].isin((SLOWER, FASTER, UNCLEAR))]
    if tested.empty:
        return ""
    parts = [
        f"{len(ratios)} {verdict} (× {interval(ratios, lambda ratio: significant(ratio, 4))})"
        for verdict in (SLOWER, FASTER)
        if len(ratios := tested.loc[tested["verdict"] == verdict, "ratio"])
    ]
    if len(tested) == 1 and parts:
        cell, keys = tested.iloc[0], shown_dimensions(tested, ("model", "context_length", "mode"))
        return f"{_label(cell.to_dict(), keys)} is {percent(abs(cell['ratio'] - 1))} {cell['verdict']}"
    return f"{'; '.join(parts) or 'No change was detected'} in {counted(len(tested), 'run')}"


FIGURE = Figure("ratios", "Time of a step after ÷ before", draw, result, tables=("runs", "cells"))


def _label(row: dict, keys: list[str]) -> str:
    return " · ".join(BY_KEY[key].name_of(row[key]) for key in keys)


def _with_room(cells: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """(the rows of the MAX_LINES lines with a ratio farthest from 1, in their order; a note on the others, if any)."""
    farthest = (cells["ratio"] - 1).abs().groupby(cells["line"]).max().nlargest(MAX_LINES).index
    drawn = cells[cells["line"].isin(farthest)]
    left_out = len(cells) - len(drawn)
    note = f"Not drawn, for want of room: {left_out} runs that changed less. The table has them."
    return drawn, (note,) if left_out else ()


def _reach(cells: pd.DataFrame) -> float:
    """The upper end of the axis; the lower end is 1 ÷ this. All ratios fit into the axis, all intervals of changed
    runs, and most of the other intervals."""
    ratios, ends = cells["ratio"].astype("float64"), cells[["ratio_low", "ratio_high"]].astype("float64")
    interval_reach = pd.concat([ends, 1 / ends], axis=1).max(axis=1)  # the reach that each interval needs
    changed = interval_reach[cells["verdict"].isin((SLOWER, FASTER))]
    return max(MIN_REACH, interval_reach.quantile(FITTING_SHARE), *changed, *ratios, *(1 / ratios)) * MARGIN


def _panel(
    cells: pd.DataFrame, mode: str, x: LogAxis, lines: list[str], width: int, *, has_names: bool
) -> alt.LayerChart:
    """The ratios of one mode, with a line for each of `lines`, which are named if `has_names`."""
    names = marks.name_axis(labels=has_names, domain=has_names)
    y = alt.Y("line:N", scale=alt.Scale(domain=lines), sort=lines, axis=names)
    axis = alt.Axis(title=None, values=_ticks(x), format="~g")
    low, middle, high = (
        alt.X(f"{name}_drawn:Q", scale=x.scale, axis=axis) for name in ("ratio_low", "ratio", "ratio_high")
    )
    style = _verdict_channels(cells)
    base = alt.Chart(cells).encode(y=y, color=style["color"])
    tooltip = marks.tooltip(
        cells, ("ratio", "after ÷ before", marks.DIGITS), ("ratio_low", "from", marks.DIGITS),
        ("ratio_high", "to", marks.DIGITS), ("verdict", "verdict"),
    )  # fmt: skip
    unchanged = alt.Chart(pd.DataFrame({"ratio_drawn": [1.0]})).mark_rule(color=GREY).encode(x=middle)
    points = base.mark_point(filled=True).encode(x=middle, shape=style["shape"], tooltip=tooltip)
    changed = cells[cells["verdict"].isin((SLOWER, FASTER))]
    texts = alt.Chart(changed.assign(text=[f"× {significant(ratio, 4)}" for ratio in changed["ratio"]]))
    beyond = (
        ("triangle-left", low, cells["ratio_low"] < x.low),
        ("triangle-right", high, cells["ratio_high"] > x.high),
    )
    arrows = [
        alt.Chart(cells[is_beyond]).mark_point(shape=shape, filled=True, size=22, color=GREY).encode(x=end, y=y)
        for shape, end, is_beyond in beyond
        if is_beyond.any()
    ]
    text = texts.mark_text(dy=-8, fontSize=SMALL).encode(x=middle, y=y, text="text:N")
    layers = alt.layer(unchanged, base.mark_rule().encode(x=low, x2="ratio_high_drawn"), points, *arrows, text)
    title = alt.TitleParams(MODE.name_of(mode), frame="group")
    return layers.properties(title=title, width=width, height=LINE_PX * len(lines))


def _ticks(x: LogAxis) -> list[float]:
    """Ticks at 1 and at equal distances on both sides, in round percentages."""
    step = next(step for step in TICK_STEPS if step >= (x.high - 1) / 3)
    return [tick for tick in (1 - 2 * step, 1 - step, 1, 1 + step, 1 + 2 * step) if x.low <= tick <= x.high]


def _verdict_channels(cells: pd.DataFrame) -> dict[str, alt.Color | alt.Shape]:
    """The channels of colour and shape, with a legend of the verdicts that occur."""
    present = set(cells["verdict"])
    names = [verdict for verdict in COLORS if verdict in present]
    key = legend(names, values=names)
    colors, shapes = (alt.Scale(domain=list(values), range=list(values.values())) for values in (COLORS, SHAPES))
    return {
        "color": alt.Color("verdict:N", scale=colors, legend=key),
        "shape": alt.Shape("verdict:N", scale=shapes, legend=key),
    }
