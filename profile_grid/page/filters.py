"""What the menus of the page offer: a menu per dimension in which the runs differ."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from profile_grid.figures.run_selection import models_in_order
from profile_grid.study.dimensions import EVERY_DIMENSION, MODEL, Dimension
from profile_grid.tables.pivoting import sorted_values


@dataclass(frozen=True)
class Menu:
    """One menu: the column that it filters, its label, and value and text of each choice."""

    column: str
    label: str
    choices: tuple[tuple[str, str], ...]


def menus(runs: pd.DataFrame, tables: Iterable[pd.DataFrame] = ()) -> list[Menu]:
    """The menus in the order of the dimensions. If no run has values of a dimension, they come from the tables: one
    process may measure several."""
    shown_menus = []
    for dimension in EVERY_DIMENSION:
        key = dimension.key
        rows = next((table for table in (runs, *tables) if key in table and table[key].notna().any()), None)
        if rows is not None and rows[key].nunique() > 1:
            choices = tuple((str(value), dimension.name_of(value)) for value in _in_order(rows, dimension))
            shown_menus.append(Menu(key, dimension.heading, choices))
    return shown_menus


def _in_order(runs: pd.DataFrame, dimension: Dimension) -> list:
    """The distinct values: models by size, others in the declared order or by value."""
    return models_in_order(runs) if dimension is MODEL else sorted_values(runs, dimension.key)
