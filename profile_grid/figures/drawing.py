"""What a figure is: defined once by its question, for paper and for the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from profile_grid.figures.layout import Spec

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Drawing:
    """What a figure draws of one machine, as Vega-Lite reads it.

    The page filters the rows of its data by the dimensions that they name: a mode that the figure chooses by itself is
    not named. Without a chart, `reason` says why there is nothing to draw. Below it stand `notes`, sentences; on paper
    also `absent`, which name the runs without results. The page shows the lines of `legend` on request: they are too
    long for paper. `title` replaces that of the figure, if the quantity has another name on this device.
    """

    chart: Spec | None = None
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    reason: str = ""
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure. `draw` and `result` read `tables`, tables of results/tables by name, of one machine.

    `title` is the quantity that is drawn. `result` gives the headline: what the figure shows in one short sentence,
    computed from the data; plain text, names not escaped; empty if there is nothing to say.
    """

    name: str
    title: str
    draw: Callable[[Tables], Drawing]
    result: Callable[[Tables], str]
    tables: tuple[str, ...]
