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

LINE_PX, BAR_PX = 11, 17  # heights of a line of labels, and of a bar
MISSING_MARGIN_PX = 8  # below the lowest cross of a run without results
MIN_BAR_SHARE, MIN_AREA_SHARE = 0.005, 0.002  # of the longest bar or highest stack: a smaller part cannot be seen
BAR_SYMBOL_AREA = 130  # square pixels of a legend's square, large enough to show the lines of a fill
MAX_LABELLED, MAX_LINES = 3, 10  # runs without results with labels, in one panel; crosses above one context length
MAX_NAMED = 30  # runs without results in one note
CROSSES_LABEL = "×: runs without results"
DIGITS, SHARE = ",.4~r", ".1%"  # formats of numbers


def tooltip(rows: pd.DataFrame, *values: tuple[str, str] | tuple[str, str, str]) -> list[alt.Tooltip]:
    """The dimensions of a row, then these columns: (name, title) for texts, (name, title, format) for numbers."""
    dimensions = [alt.Tooltip(f"{key}:N", title=BY_KEY[key].heading) for key in KEYS if key in rows.columns]
    return dimensions + [
        alt.Tooltip(f"{name}:Q", title=title, format=formats[0]) if formats else alt.Tooltip(f"{name}:N", title=title)
        for name, title, *formats in values
    ]  # fmt: skip


def with_ends(rows: pd.DataFrame, mean: str, std: str, name: str) -> pd.DataFrame:
    """The rows with `name`_low and `name`_high, one standard deviation from the mean; NaN without a spread. If the
    spread is more than half the mean, `name`_low is the mean: on a logarithmic axis, it would hide everything else."""
    low, high = rows[mean] - rows[std], rows[mean] + rows[std]
    is_far = low < rows[mean] / 2  # False for NaN, which stays NaN
    return rows.assign(**{f"{name}_low": low.mask(is_far, rows[mean]), f"{name}_high": high})


def log_axis(rows: pd.DataFrame, mean: str, std: str, length_px: int, margin: float = 1.3) -> LogAxis:
    """A logarithmic axis that holds these means with their spread."""
    ends = with_ends(rows, mean, std, "end")
    return LogAxis.around(ends[[mean, "end_low", "end_high"]].to_numpy("float64").ravel(), length_px, margin)


def means_with_spread(
    rows: pd.DataFrame, x: alt.X, y: LogAxis, title: str | None, series: Series, mean: str, std: str, tooltip: list,
    joined: bool = True,
) -> list[alt.Chart]:  # fmt: skip
    """A marker at each mean with its spread; if `joined`, a line joins the markers of each series."""
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


def fill_key(fills: Mapping[str, object]) -> alt.Fill:
    """The fill channel of the column `how` with these fills by value, and a legend of round markers."""
    legend = alt.Legend(symbolType="circle", symbolStrokeColor=GREY, symbolStrokeWidth=1.2)
    return alt.Fill("how:N", scale=alt.Scale(domain=list(fills), range=list(fills.values())), legend=legend)


def hollow_and_filled(hollow: str, filled: str) -> alt.Chart:
    """A chart that consists of a legend only: what hollow and filled markers mean."""
    empty = alt.Chart(pd.DataFrame({"how": pd.Series(dtype="str")})).mark_point()
    return empty.encode(fill=fill_key({filled: GREY, hollow: GROUND}))


def part_fills(rows: pd.DataFrame, column: str, lined: bool = True) -> alt.Fill:
    """The fill channel of parts of bars from `start` to `end`, the same in all panels of a figure. The legend has the
    visible parts only. With `lined`, fills may have lines; areas get none, since these would cross each other."""
    names, min_share = in_drawing_order(rows[column]), MIN_BAR_SHARE if lined else MIN_AREA_SHARE
    lengths = (rows["end"] - rows["start"]).groupby(rows[column]).max()
    styles = [part_style(name) for name in names]
    scale = alt.Scale(domain=names, range=[fill(style.color, style.lines if lined else 0) for style in styles])
    visible = [name for name in names if lengths[name] > min_share * rows["end"].max()]
    return alt.Fill(f"{column}:N", scale=scale, legend=legend(visible, values=visible, symbolSize=BAR_SYMBOL_AREA))


def stacked(rows: pd.DataFrame, value: str, by: str, stack: str = "run") -> pd.DataFrame:
    """The rows with `start` and `end` of each part in its `stack`: running sums of `value` in the drawing order of the
    column `by`."""
    positions = {name: position for position, name in enumerate(in_drawing_order(rows[by]))}
    rows = rows.sort_values(by, key=lambda names: names.map(positions), kind="stable")
    end = rows[value].astype(float).groupby(rows[stack], sort=False).cumsum()  # without rows, it may be no number
    return rows.assign(start=end - rows[value], end=end)


def bar_axis(names: list[str], labelled: bool = True) -> alt.Y:
    """The channel of the column `bar`, in the order of these names."""
    return alt.Y("bar:N", scale=alt.Scale(domain=names, paddingInner=0.22), axis=name_axis(labels=labelled))


def bars(rows: pd.DataFrame, channels: dict, fills: alt.Fill, tooltip: list) -> alt.LayerChart:
    """Bars of parts from `start` to `end`, each followed by the text in the column `text`."""
    parts = alt.Chart(rows).mark_bar(stroke=GROUND, strokeWidth=0.5)
    parts = parts.encode(**channels, x2="end", fill=fills, tooltip=tooltip)
    last_parts = rows.sort_values("end", kind="stable").drop_duplicates("bar", keep="last")
    texts = alt.Chart(last_parts.assign(start=last_parts["end"])).mark_text(align="left", dx=4, fontSize=SMALL)
    return alt.layer(parts, texts.encode(**channels, text="text:N"))


def missing_marks_px(missing: pd.DataFrame) -> float:
    """The height that the marks of runs without results need at the bottom of a panel."""
    if missing.empty:
        return 0
    label_lines = 1 if len(missing) > MAX_LABELLED else 0  # otherwise labels are next to the crosses
    return MISSING_MARGIN_PX + LINE_PX * (int(_line_numbers(missing).max()) + 1 + label_lines)


def missing_marks(
    missing: pd.DataFrame, contexts: ContextAxis, y: LogAxis, series: Series, name_column: str = "model"
) -> list[alt.Chart]:
    """A cross per run without results, at its context length at the bottom of the panel, labelled with the name and the
    status. If there are many, one label says what the crosses are; the notes list the runs."""
    if missing.empty:
        return []
    statuses, line_numbers = missing["status"].replace(STATUS_WORDS), _line_numbers(missing)
    why = statuses + missing["reason"].map(lambda reason: f": {reason}" if isinstance(reason, str) else "")
    rows = missing.assign(y=[y.at_px(MISSING_MARGIN_PX + LINE_PX * number) for number in line_numbers], why=why)
    channels = {"x": contexts.x(), "y": alt.Y("y:Q", scale=y.scale)}
    crosses = alt.Chart(rows).mark_point(shape=CROSS, size=25, strokeWidth=1.5)
    crosses = crosses.encode(**channels, color=series.color(), tooltip=tooltip(rows, ("why", "no results")))
    if len(rows) > MAX_LABELLED:
        label_px = MISSING_MARGIN_PX + LINE_PX * (line_numbers.max() + 1)
        above = pd.DataFrame({"y": [y.at_px(label_px)], "context_length": contexts.low})
        return [crosses, *_labels(above.assign(label=CROSSES_LABEL), contexts, channels)]
    return [
        crosses,
        *_labels(rows.assign(label=missing[name_column].astype("str") + ": " + statuses), contexts, channels),
    ]


def against_context(
    rows: pd.DataFrame, missing: pd.DataFrame, contexts: ContextAxis, title: str, series: Series, time: tuple[str, str],
    tooltip: list, size: tuple[int, int],
) -> alt.LayerChart:  # fmt: skip
    """Lines of times against context length, with the runs without results. `time` are the columns of means and
    standard deviations, `size` is (width, height)."""
    y = log_axis(rows, *time, size[1]).with_room(below_px=missing_marks_px(missing))
    lines = means_with_spread(rows, contexts.x(), y, title, series, *time, tooltip)
    crosses = missing_marks(missing, contexts, y, series, name_column=series.column)
    return alt.layer(*lines, *crosses, width=size[0], height=size[1])


def _line_numbers(missing: pd.DataFrame) -> pd.Series:
    """The line of each cross, counted from the bottom. If all crosses have labels, each has a line of its own;
    otherwise only crosses of one context length are above each other."""
    if len(missing) <= MAX_LABELLED:
        return pd.Series(range(len(missing)), index=missing.index)
    return missing.groupby("context_length").cumcount().clip(upper=MAX_LINES - 1)


def _labels(rows: pd.DataFrame, contexts: ContextAxis, channels: dict) -> list[alt.Chart]:
    """The labels, on the side of their marks that has more room."""
    is_right = rows["context_length"].map(contexts.is_right).astype("bool")
    sides = ((rows[is_right], "right", -7), (rows[~is_right], "left", 7))
    return [
        alt.Chart(side).mark_text(align=align, dx=shift_px, fontSize=SMALL).encode(**channels, text="label:N")
        for side, align, shift_px in sides
        if len(side)
    ]


def missing_notes(missing: pd.DataFrame) -> list[str]:
    """A note per status with the names of the first runs without results (the column `name`, if there is one) and the
    number of the others."""
    notes = []
    missing = missing if "name" in missing else missing.assign(name=labels(missing))
    for status, rows in missing.groupby("status", sort=False):
        names = list(dict.fromkeys(rows["name"]))
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        notes.append(capital(f"{STATUS_WORDS.get(status, status)}: {', '.join(names[:MAX_NAMED])}{more}."))
    return notes
