"""One group of panels per combination of the dimensions that a figure does not show: nothing is drawn over another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from profile_grid.figures.layout import Spec, column
from profile_grid.tables import apart

MOST_GROUPS = 6


@dataclass(frozen=True)
class Group:
    """The runs of one combination, and its title: empty where there is but one."""

    title: str
    runs: pd.DataFrame

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows that belong to these runs."""
        return rows[rows["run"].isin(self.runs["run"])]


def split(runs: pd.DataFrame, shown: Sequence[str]) -> tuple[list[Group], list[str]]:
    """The runs by combination of what the figure does not show, in the order of the table, as far as there is room for
    them; and a note that names the others."""
    return fitting([Group(title, own) for title, own in apart.split(runs, shown)])


def fitting(groups: list[Group]) -> tuple[list[Group], list[str]]:
    """As many groups as a figure has room for, and a note that names the others."""
    left_out = "; ".join(group.title for group in groups[MOST_GROUPS:])
    notes = [f"Not drawn, for want of room: {left_out}. The tables have them."] if left_out else []
    return groups[:MOST_GROUPS], notes


def stacked(groups: Iterable[Group], panels: Callable[[Group], Spec | None]) -> Spec | None:
    """The panels of every group below each other, each under its title; None where no group has any."""
    drawn = [(group.title, chart) for group in groups if (chart := panels(group)) is not None]
    if not drawn:
        return None
    titled = [column(chart, spacing=0, title=_heading(title)) if title else chart for title, chart in drawn]
    return column(*titled, spacing=22)


def _heading(text: str) -> alt.TitleParams:
    return alt.TitleParams(text, fontWeight="bold", frame="group")
