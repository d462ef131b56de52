"""Marks that the figures share: measured points with their spread, stacked bars, runs without results, tooltips."""

from collections.abc import Mapping

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY
from profile_grid.figures.run_selection import STATUS_WORDS, labels
from profile_grid.figures.theme import (
    CROSS,
    GROUND,
    SMALL,
    ContextAxis,
    LogAxis,
    Series,
    fill,
    in_drawing_order,
    legend,
    part_style,
)
from profile_grid.study.dimensions import BY_KEY, KEYS
from profile_grid.tables.wording import capital

LINE_PX, BAR_PX = 11, 17
LEAST_SEEN, LEAST_AREA = 0.005, 0.002  # of the longest bar or highest stack; areas have no outline that hides them
BAR_SYMBOL = 130  # the area of a legend's square, in which lines are seen
MAX_LABELLED, MAX_LINES = 3, 10  # runs without results in one panel, and crosses above one context length
MAX_NAMED = 30  # runs without results in one note
MANY = "×: runs without results"
DIGITS = ",.4~r"
SHARE = ".1%"


def status_words(status: str) -> str:
    """Why a run has no results, in words."""
    return STATUS_WORDS.get(status, status)


def tooltip(rows: pd.DataFrame, *values: tuple[str, str] | tuple[str, str, str]) -> list[alt.Tooltip]:
    """The dimensions of a row, then these columns: (name, title) of text, (name, title, format) of a number."""
    dimensions = [alt.Tooltip(f"{key}:N", title=BY_KEY[key].heading) for key in KEYS if key in rows.columns]
    return dimensions + [
        alt.Tooltip(f"{name}:Q", title=title, format=formats[0]) if formats else alt.Tooltip(f"{name}:N", title=title)
        for name, title, *formats in values
    ]  # fmt: skip


def with_ends(rows: pd.DataFrame, mean: str, std: str, name: str) -> pd.DataFrame:
    """The rows with `name`_low and `name`_high, one standard deviation from the mean; NaN without a spread.

    If the spread is more than half the mean, `name`_low is the mean: a logarithmic axis would show nothing else.
    """
    low, high = rows[mean] - rows[std], rows[mean] + rows[std]
    return rows.assign(**{f"{name}_low": low.where(~(low < rows[mean] / 2), rows[mean]), f"{name}_high": high})


def log_axis(rows: pd.DataFrame, mean: str, std: str, length_px: int, margin: float = 1.3) -> LogAxis:
    """The axis of these means with their spread."""
    ends = with_ends(rows, mean, std, "end")
    return LogAxis.around(ends[[mean, "end_low", "end_high"]].to_numpy("float64").ravel(), length_px, margin)


def means_with_spread(
    rows: pd.DataFrame, x: alt.X, y: LogAxis, title: str | None, series: Series, mean: str, std: str, tooltip: list,
    joined: bool = True,
) -> list[alt.Chart]:  # fmt: skip
    """A marker at each mean with its spread, per series joined by a line."""
    ends, axis = with_ends(rows[rows[mean].notna()], mean, std, mean), y.axis(title)
    base = alt.Chart(ends).encode(x=x, color=series.color())
    low, middle = (alt.Y(f"{name}:Q", scale=y.scale, axis=axis) for name in (f"{mean}_low", mean))
    line = [base.mark_line().encode(y=middle, strokeDash=series.dash())] if joined else []
    return [
        *line,
        base.mark_rule().encode(y=low, y2=f"{mean}_high"),
        base.mark_point(filled=True).encode(y=middle, shape=series.shape(), tooltip=tooltip),
    ]


def name_axis(**options) -> alt.Axis:
    """An axis of names, without a grid."""
    return alt.Axis(title=None, ticks=False, labelPadding=6, **({"grid": False} | options))


def fill_key(column: str, fills: Mapping[str, object]) -> alt.Fill:
    """The channel of fills, with a legend of what hollow and filled markers mean."""
    legend = alt.Legend(symbolType="circle", symbolStrokeColor=GREY, symbolStrokeWidth=1.2)
    return alt.Fill(f"{column}:N", scale=alt.Scale(domain=list(fills), range=list(fills.values())), legend=legend)


def hollow_and_filled(hollow: str, filled: str) -> alt.Chart:
    """A legend of what hollow and filled markers mean, without a marker."""
    nothing = alt.Chart(pd.DataFrame({"how": pd.Series(dtype="str")})).mark_point()
    return nothing.encode(fill=fill_key("how", {filled: GREY, hollow: GROUND}))


def part_fills(rows: pd.DataFrame, column: str, lined: bool = True) -> alt.Fill:
    """The fill channel of parts of bars from `start` to `end`, the same in all panels of a figure. The legend has the
    visible parts only. Lines follow a bar; in areas (`lined` False) they would cross."""
    names, least = in_drawing_order(rows[column]), LEAST_SEEN if lined else LEAST_AREA
    wide = (rows["end"] - rows["start"]).groupby(rows[column]).max() > least * rows["end"].max()
    styles = [part_style(name) for name in names]
    scale = alt.Scale(domain=names, range=[fill(color, lines if lined else 0) for color, lines in styles])
    visible = [name for name in names if wide[name]]
    return alt.Fill(f"{column}:N", scale=scale, legend=legend(visible, values=visible, symbolSize=BAR_SYMBOL))


def stacked(rows: pd.DataFrame, value: str, by: str, stack: str = "run") -> pd.DataFrame:
    """The rows with `start` and `end` of each part in its `stack`: sums of `value` in the drawing order of `by`."""
    order = {name: position for position, name in enumerate(in_drawing_order(rows[by]))}
    rows = rows.assign(_order=rows[by].map(order)).sort_values("_order", kind="stable")
    end = rows[value].astype(float).groupby(rows[stack], sort=False).cumsum()  # a table without rows has no numbers
    return rows.assign(start=end - rows[value], end=end).drop(columns="_order")


def bar_axis(names: list[str], labelled: bool = True) -> alt.Y:
    """The channel of the column `bar`, in the order of these names."""
    return alt.Y("bar:N", scale=alt.Scale(domain=names, paddingInner=0.22), axis=name_axis(labels=labelled))


def bars(rows: pd.DataFrame, channels: dict, fills: alt.Fill, tooltip: list) -> alt.LayerChart:
    """Bars of parts from `start` to `end`, with the column `text` after each bar."""
    parts = alt.Chart(rows).mark_bar(stroke=GROUND, strokeWidth=0.5)
    parts = parts.encode(**channels, x2="end", fill=fills, tooltip=tooltip)
    last = rows.sort_values("end", kind="stable").drop_duplicates("bar", keep="last")
    after = alt.Chart(last.assign(start=last["end"])).mark_text(align="left", dx=4, fontSize=SMALL)
    return alt.layer(parts, after.encode(**channels, text="text:N"))


def missing_marks_px(missing: pd.DataFrame) -> float:
    """The height that the marks of runs without results need at the foot of a panel."""
    return 0 if missing.empty else 8 + LINE_PX * (int(_lines(missing).max()) + 1 + (len(missing) > MAX_LABELLED))


def missing_marks(
    missing: pd.DataFrame, contexts: ContextAxis, y: LogAxis, series: Series, named: str = "model"
) -> list[alt.Chart]:
    """A cross per run without results, at its context length and the foot of the panel, labelled with its value in the
    column `named` and the reason. If there are many, one line says what the crosses are; the notes list the runs."""
    if missing.empty:
        return []
    words, lines = missing["status"].map(status_words), _lines(missing)
    why = words + missing["reason"].map(lambda reason: f": {reason}" if isinstance(reason, str) else "")
    rows = missing.assign(y=[y.at_px(8 + LINE_PX * line) for line in lines], why=why)
    channels = {"x": contexts.x(), "y": alt.Y("y:Q", scale=y.scale)}
    crosses = alt.Chart(rows).mark_point(shape=CROSS, size=25, strokeWidth=1.5)
    crosses = crosses.encode(**channels, color=series.color(), tooltip=tooltip(rows, ("why", "no results")))
    if len(rows) > MAX_LABELLED:
        above = pd.DataFrame({"y": [y.at_px(8 + LINE_PX * (lines.max() + 1))], "context_length": contexts.low})
        return [crosses, *_labels(above.assign(label=MANY), contexts, channels)]
    return [crosses, *_labels(rows.assign(label=missing[named].astype("str") + ": " + words), contexts, channels)]


def against_context(
    rows: pd.DataFrame, missing: pd.DataFrame, contexts: ContextAxis, title: str, series: Series, time: tuple[str, str],
    tooltip: list, size: tuple[int, int],
) -> alt.LayerChart:  # fmt: skip
    """Lines of times (columns of means and spreads) against context length, with the runs without results."""
    y = log_axis(rows, *time, size[1]).with_room(below_px=missing_marks_px(missing))
    lines = means_with_spread(rows, contexts.x(), y, title, series, *time, tooltip)
    crosses = missing_marks(missing, contexts, y, series, named=series.column)
    return alt.layer(*lines, *crosses, width=size[0], height=size[1])


def _lines(missing: pd.DataFrame) -> pd.Series:
    """The line of each cross, counted from the foot: a separate one for each if all have labels, else stacked."""
    if len(missing) <= MAX_LABELLED:
        return pd.Series(range(len(missing)), index=missing.index)
    return missing.groupby("context_length").cumcount().clip(upper=MAX_LINES - 1)


def _labels(rows: pd.DataFrame, contexts: ContextAxis, channels: dict) -> list[alt.Chart]:
    """The labels, on the side of their marks that has more room."""
    right = pd.Series([contexts.is_right(length) for length in rows["context_length"]], index=rows.index, dtype="bool")
    sides = ((rows[right], "right", -7), (rows[~right], "left", 7))
    return [
        alt.Chart(labelled).mark_text(align=align, dx=shift, fontSize=SMALL).encode(**channels, text="label:N")
        for labelled, align, shift in sides
        if len(labelled)
    ]


def missing_notes(missing: pd.DataFrame) -> list[str]:
    """A note per status that names the first few runs without results, by the column `name` if there is one, and counts
    the rest."""
    named = missing if "name" in missing else missing.assign(name=labels(missing))
    return [
        capital(f"{status_words(status)}: {_named(list(dict.fromkeys(rows['name'])))}.")
        for status, rows in named.groupby("status", sort=False)
    ]


def _named(runs: list[str]) -> str:
    more = f" and {len(runs) - MAX_NAMED} more" if len(runs) > MAX_NAMED else ""
    return ", ".join(runs[:MAX_NAMED]) + more
