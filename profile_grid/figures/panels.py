"""Figures and their layout: a panel for each combination of the dimensions that a figure does not show, so that no run
is drawn over another and nothing is averaged.

A question defines each figure once, for paper and for the page, as one Vega-Lite specification. Altair could lay out
panels too, but it copies every panel at each level, which takes seconds for a figure of thirty panels.
"""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import altair as alt
import pandas as pd

from profile_grid.figures import marks, theme
from profile_grid.study.catalogue import QUESTIONS, Question
from profile_grid.study.dimensions import KEYS
from profile_grid.tables import pivoting

Spec = dict
Panel = alt.Chart | alt.LayerChart | Spec
Tables = dict[str, pd.DataFrame]
DrawPanel = Callable[[pd.DataFrame, pd.DataFrame], Panel]  # arguments: the panel's rows, its runs without results
TOP_LEVEL_KEYS = ("$schema", "config")
MAX_PANELS, MAX_BARS = 6, 60
BAR_NAMES_PX = 270
AXIS_PX, GAP_PX, HEADING_CHARACTER_PX = 60, 14, 7  # widths of an axis, of a gap between panels, of a letter


@dataclass(frozen=True)
class Drawing:
    """A figure drawn from the results of one machine.

    `chart` is for Vega-Lite; if it is None, `reason` says why. The page filters the chart's data by the columns of
    dimensions; without the column `mode` it does not filter by mode, as for figures with one mode per configuration.
    `notes` are sentences below the chart; `absent` are those that name the runs without results, for paper only.
    `legend` is too long for paper; the page shows it on request. `title` replaces that of the figure, if the quantity
    has another name on this device.
    """

    chart: Spec | None = None
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    reason: str = ""
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure. `draw` and `result` get tables of one machine by name: those in `tables`, and maybe others.

    `title` is the quantity that is drawn. `result` returns the headline: what the figure shows, in one short sentence
    computed from the data, as plain text; empty if there is nothing to say. It is called only if there is a chart.
    """

    name: str
    title: str
    draw: Callable[[Tables], Drawing]
    result: Callable[[Tables], str]
    tables: tuple[str, ...]

    def drawn(self, tables: Tables) -> tuple[Drawing, str]:
        """(drawing, its headline, which is empty without a chart)."""
        drawing = self.draw(tables)
        return drawing, self.result(tables) if drawing.chart else ""


def all_figures(questions: Iterable[Question] = QUESTIONS) -> dict[str, Figure]:
    """The figures of these questions by name, in the order of the questions."""
    modules = [import_module(f"{question.package}.figure") for question in questions if question.figures]
    return {figure.name: figure for module in modules for figure in module.FIGURES}


@dataclass(frozen=True)
class Frame:
    """How a figure is divided: a panel for each combination of the dimensions that are not in `shown`."""

    shown: Sequence[str]
    reason: str  # why nothing is drawn, if there are no rows
    columns: int = 1
    max_panels: int = MAX_PANELS

    def drawing(
        self, rows: pd.DataFrame, runs: pd.DataFrame, missing: pd.DataFrame, panel: DrawPanel,
        notes: Iterable[str] = (), legend: tuple[str, ...] = (), title: str = "",
    ) -> Drawing:  # fmt: skip
        """The figure of these rows, and of `missing`, the runs without results. `absent` of the drawing names these;
        its last note names the combinations of dimensions for which there is no room."""
        absent = tuple(marks.missing_notes(missing))
        if rows.empty:
            return Drawing(reason=self.reason, absent=absent, title=title)
        present = runs[runs["run"].isin({*rows["run"], *missing["run"]})]
        panels, left_out = {}, []
        for name, panel_runs in pivoting.split(present, self.shown):
            panel_rows = rows[rows["run"].isin(panel_runs["run"])]
            if panel_rows.empty:
                continue
            if len(panels) < self.max_panels:
                panels[name] = panel(panel_rows, missing[missing["run"].isin(panel_runs["run"])])
            else:
                left_out.append(name)
        more = [f"Not drawn, for want of room: {'; '.join(left_out)}. The tables have them."] if left_out else []
        return Drawing(in_grid(panels, self.columns), (*notes, *more), absent, legend, title=title)


def bars_of_runs(
    rows: pd.DataFrame, bars: list[str], *, color_column: str, axis_title: str, tooltip: Sequence[tuple],
    runs: pd.DataFrame, missing: pd.DataFrame, reason: str, notes: Iterable[str] = (),
) -> Drawing:  # fmt: skip
    """A stacked bar for each run, or for the first MAX_BARS, of rows as from `marks.stacked`. `bars` are the
    values of the column `bar` in order; `tooltip` is as for `marks.tooltip`; for the other arguments, see Frame."""
    drawn_bars = bars[:MAX_BARS]
    parts, axis = rows[rows["bar"].isin(drawn_bars)], alt.Axis(title=axis_title)
    fills = marks.part_fills(parts, color_column)

    def panel(data: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
        channels = {"x": alt.X("start:Q", axis=axis), "y": marks.bar_axis(drawn_bars)}
        layers = marks.bars(data, channels, fills, marks.tooltip(data, *tooltip))
        return layers.properties(width=theme.WIDTH - BAR_NAMES_PX, height=alt.Step(marks.BAR_PX))

    notes = [*notes, *notes_on_cut(len(bars), MAX_BARS, "The first {most} of {number} runs")]
    return Frame(KEYS, reason).drawing(parts, runs, missing, panel, notes)


def notes_on_cut(number: int, most: int, drawn: str, in_table: str = "all") -> list[str]:
    """A note that not everything is drawn but the table has it, if the `number` is above `most`. `drawn` is a template
    with {most} and {number}: "The first {most} of {number} runs"; `in_table` is what the table has: "all runs"."""
    drawn = drawn.format(most=most, number=number)
    return [f"{drawn} are drawn; the table has {in_table}."] if number > most else []


def in_grid(panels: Mapping[str, Panel], columns: int) -> Spec:
    """The panels under their titles, in lines of `columns` panels."""
    characters = theme.WIDTH // columns // HEADING_CHARACTER_PX
    titled = [
        column(panel, spacing=0, title=_heading(textwrap.wrap(name, characters))) if name else panel
        for name, panel in panels.items()
    ]
    return _in_lines(titled, columns, spacing=22)


def side_by_side(
    panels: Mapping[str, alt.Chart | alt.LayerChart], height: int, columns: int | None = None, one_axis: bool = False
) -> Spec:
    """Charts under their titles in lines of `columns` charts, by default in one line; a line is as wide as a figure.
    With `one_axis`, only the first chart of a line needs room for an axis."""
    columns = columns or max(len(panels), 2)
    width = (theme.WIDTH - AXIS_PX) // columns - GAP_PX if one_axis else theme.WIDTH // columns - AXIS_PX
    sized = [
        chart.properties(title=alt.TitleParams(name, frame="group"), width=width, height=height)
        for name, chart in panels.items()
    ]
    return _in_lines(sized, columns, spacing=16)


def _in_lines(panels: list[Panel], columns: int, spacing: int) -> Spec:
    lines = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    return column(*[row(*line, spacing=GAP_PX) for line in lines], spacing=spacing)


def _heading(lines: list[str]) -> alt.TitleParams:
    """The title of panels that belong together."""
    return alt.TitleParams(lines, fontWeight="bold", frame="group")


def row(*panels: Panel, spacing: int, **properties) -> Spec:
    """The panels next to each other."""
    return _concatenated("hconcat", panels, spacing, properties)


def column(*panels: Panel, spacing: int, **properties) -> Spec:
    """The panels below each other."""
    return _concatenated("vconcat", panels, spacing, properties)


def _concatenated(direction: str, panels: tuple[Panel, ...], spacing: int, properties: dict) -> Spec:
    """One specification with the data of all panels at the top level, and `properties` such as title and resolve."""
    inner, datasets = [], {}
    for panel in panels:
        specification = _specification(panel)
        datasets |= specification.get("datasets", {})
        inner.append({name: value for name, value in specification.items() if name != "datasets"})
    plain = {
        name: value.to_dict() if isinstance(value, alt.SchemaBase) else value for name, value in properties.items()
    }
    return {direction: inner, "spacing": spacing, "datasets": datasets} | plain


def _specification(panel: Panel) -> Spec:
    """A panel as Vega-Lite reads it, with its data by name; there may be any number of rows."""
    if isinstance(panel, dict):
        return panel
    with alt.data_transformers.enable("default", max_rows=None):
        chart = panel.to_dict(validate=False)  # Altair has checked its parts already
    return {name: value for name, value in chart.items() if name not in TOP_LEVEL_KEYS}
