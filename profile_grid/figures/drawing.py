"""The types of figures. A question defines each figure once, for paper and for the page."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from profile_grid.figures.layout import Spec

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
    computed from the data; plain text, names not escaped; empty if there is nothing to say.
    """

    name: str
    title: str
    draw: Callable[[Tables], Drawing]
    result: Callable[[Tables], str]
    tables: tuple[str, ...]
