"""The types of figures, and all figures by name. A question defines each figure once, for paper and for the page."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

import pandas as pd

from profile_grid.figures.layout import Spec
from profile_grid.study.catalogue import QUESTIONS, Question

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Drawing:
    """A figure of one machine, drawn.

    `chart` is for Vega-Lite; if it is None, `reason` says why. The page filters the chart's data by their columns of
    dimensions, so data have no column of a mode that the figure chose. `notes` are sentences below the chart; `absent`,
    on paper only, name the runs without results. `legend` is too long for paper: the page shows it on request. `title`
    replaces that of the figure, if the quantity has another name on this device.
    """

    chart: Spec | None = None
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    reason: str = ""
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure. `draw` and `result` read `tables`, by name, of one machine.

    `title` is the quantity that is drawn. `result` returns the headline: what the figure shows, in one short sentence
    computed from the data; plain text, names not escaped; empty if there is nothing to say. It is called only if there
    is a chart.
    """

    name: str
    title: str
    draw: Callable[[Tables], Drawing]
    result: Callable[[Tables], str]
    tables: tuple[str, ...]

    def drawn(self, tables: Tables) -> tuple[Drawing, str]:
        """The drawing, and its headline; that is empty without a chart."""
        drawing = self.draw(tables)
        return drawing, self.result(tables) if drawing.chart else ""


def all_figures(questions: Iterable[Question] = QUESTIONS) -> dict[str, Figure]:
    """The figures of these questions by name, in the order of the questions and of the figures of each."""
    figures = [
        figure
        for question in questions
        if question.figures
        for figure in import_module(f"{question.package}.figure").FIGURES
    ]
    return {figure.name: figure for figure in figures}
