"""Marks that the figures share: measured points with their spread, runs without figures, keys, and tooltips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import altair as alt
import pandas as pd

from kernel_tables.page.colors import GREY
from profile_grid.figures.scales import Contexts, Log, Series, legend
from profile_grid.figures.shown import STATUS_WORDS
from profile_grid.figures.theme import CROSS, SMALL, family_style, fill, in_drawing_order
from profile_grid.study.dimensions import DIMENSIONS
from profile_grid.tables.wording import capital

LINE_PX = 11
BAR_SYMBOL = 130  # the area of a legend's square, in which lines are seen
MOST_LABELLED, MOST_LINES = 3, 10  # runs without figures in one panel, and crosses above one context length
MOST_NAMED = 30  # runs without figures in one note
MANY = "×: runs without figures, listed below"
DIGITS = ",.4~r"
SHARE = ".1%"


def status_words(status: str) -> str:
    """Why a run has no figures, in words."""
    return STATUS_WORDS.get(status, status)


def tooltip(rows: pd.DataFrame, *values: tuple[str, str] | tuple[str, str, str]) -> list[alt.Tooltip]:
    """The dimensions of a row, then these columns: (name, title) of text, (name, title, format) of a number."""
    dimensions = [alt.Tooltip(f"{one.key}:N", title=one.heading) for one in DIMENSIONS if one.key in rows.columns]
    return dimensions + [
        alt.Tooltip(f"{name}:Q", title=title, format=of[0]) if of else alt.Tooltip(f"{name}:N", title=title)
        for name, title, *of in values
    ]  # fmt: skip


def with_ends(rows: pd.DataFrame, mean: str, std: str, name: str) -> pd.DataFrame:
    """The rows with `name`_low and `name`_high, a standard deviation around the mean; absent without a spread.

    Where the low end would be no positive number, which a logarithmic axis lacks, the upper half is left."""
    low, high = rows[mean] - rows[std], rows[mean] + rows[std]
    return rows.assign(**{f"{name}_low": low.where(~(low <= 0), rows[mean]), f"{name}_high": high})


def panel_title(text: str) -> alt.TitleParams:
    """The title of one panel."""
    return alt.TitleParams(text, frame="group")


def name_axis(**options) -> alt.Axis:
    """An axis of names, without a line of its own for each."""
    return alt.Axis(title=None, ticks=False, labelPadding=6, **({"grid": False} | options))


def fill_key(column: str, fills: Mapping[str, object]) -> alt.Fill:
    """The channel of fills, with a legend of what hollow and filled markers mean."""
    legend = alt.Legend(symbolType="circle", symbolStrokeColor=GREY, symbolStrokeWidth=1.2)
    return alt.Fill(f"{column}:N", scale=alt.Scale(domain=list(fills), range=list(fills.values())), legend=legend)


def family_fills(families: Iterable[str], in_legend: bool = True) -> alt.Fill:
    """The channel of the fills of families of kernel classes; the same for all panels of a figure, which share it."""
    names = in_drawing_order(families)
    scale = alt.Scale(domain=names, range=[fill(*family_style(name)) for name in names])
    return alt.Fill("family:N", scale=scale, legend=legend(names, symbolSize=BAR_SYMBOL) if in_legend else None)


def room_px(missing: pd.DataFrame) -> float:
    """The height that the marks of runs without figures need at the foot of a panel."""
    return 0 if missing.empty else 8 + LINE_PX * (int(_lines(missing).max()) + 1 + (len(missing) > MOST_LABELLED))


def missing_marks(
    missing: pd.DataFrame, contexts: Contexts, y: Log, series: Series, named: str = "model"
) -> list[alt.Chart]:
    """A cross per run without figures above its context length, at the foot of the panel, and beside it why, with its
    value in the column `named`. Where they are many one line says what the crosses are: the notes list the runs."""
    if missing.empty:
        return []
    words, lines = missing["status"].map(status_words), _lines(missing)
    why = words + missing["reason"].map(lambda reason: f": {reason}" if isinstance(reason, str) else "")
    rows = missing.assign(y=[y.at_px(8 + LINE_PX * line) for line in lines], why=why)
    place = {"x": contexts.x(), "y": alt.Y("y:Q", scale=y.scale)}
    crosses = alt.Chart(rows).mark_point(shape=CROSS, size=25, strokeWidth=1.5)
    crosses = crosses.encode(**place, color=series.color(), tooltip=tooltip(rows, ("why", "no figures")))
    if len(rows) > MOST_LABELLED:
        above = pd.DataFrame({"y": [y.at_px(8 + LINE_PX * (lines.max() + 1))], "context_length": contexts.low})
        return [crosses, *_labels(above.assign(label=MANY), contexts, place)]
    return [crosses, *_labels(rows.assign(label=missing[named].astype("str") + ": " + words), contexts, place)]


def _lines(missing: pd.DataFrame) -> pd.Series:
    """The line of each cross, from the foot: one of its own where all have a label, else one above another."""
    if len(missing) <= MOST_LABELLED:
        return pd.Series(range(len(missing)), index=missing.index)
    return missing.groupby("context_length").cumcount().clip(upper=MOST_LINES - 1)


def _labels(rows: pd.DataFrame, contexts: Contexts, place: dict) -> list[alt.Chart]:
    """The labels on the side of their marks where there is more room."""
    right = pd.Series([contexts.is_right(length) for length in rows["context_length"]], index=rows.index, dtype="bool")
    sides = ((rows[right], "right", -7), (rows[~right], "left", 7))
    return [
        alt.Chart(own).mark_text(align=align, dx=shift, fontSize=SMALL).encode(**place, text="label:N")
        for own, align, shift in sides
        if len(own)
    ]


def missing_notes(missing: pd.DataFrame) -> list[str]:
    """A note per status that names the runs without figures, as many as a reader reads, and counts the others."""
    return [
        capital(f"{status_words(status)}: {_named(list(runs))}.")
        for status, runs in missing.groupby("status", sort=False)["run"]
    ]


def _named(runs: list[str]) -> str:
    more = f" and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else ""
    return ", ".join(runs[:MOST_NAMED]) + more


def missing_count(missing: pd.DataFrame) -> str:
    """How many runs have no figures, for a caption; empty where all have."""
    return f"{len(missing)} run(s) without figures are marked." if len(missing) else ""
