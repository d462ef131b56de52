"""What the menus of the page offer: a menu per dimension in which the runs differ."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from profile_grid.figures.shown import models_in_order
from profile_grid.study.dimensions import DIMENSIONS, MODEL, Dimension
from profile_grid.tables.apart import sorted_values


@dataclass(frozen=True)
class Menu:
    """One menu: the column that it filters, its label, and value and text of each choice."""

    column: str
    label: str
    choices: tuple[tuple[str, str], ...]


def menus(runs: pd.DataFrame) -> list[Menu]:
    """The menus in the order of the dimensions."""
    differing = [one for one in DIMENSIONS if runs[one.key].nunique() > 1]
    return [
        Menu(one.key, one.heading, tuple((str(value), one.name_of(value)) for value in _in_order(runs, one)))
        for one in differing
    ]


def _in_order(runs: pd.DataFrame, dimension: Dimension) -> list:
    """The values that there are: models by size, others as declared or in their own order."""
    return models_in_order(runs) if dimension is MODEL else sorted_values(runs, dimension.key)
