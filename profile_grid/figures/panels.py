"""The frame of a figure: a panel for each combination of the dimensions that it does not show.

So no run is drawn over another, and nothing is averaged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing
from profile_grid.figures.layout import Panel, Spec, column, row
from profile_grid.figures.theme import WIDTH
from profile_grid.study.dimensions import KEYS
from profile_grid.tables import pivoting

MAX_GROUPS, MAX_BARS = 6, 60
BAR_NAMES_PX = 270
AXIS_PX, GAP_PX = 60, 14
Draw = Callable[[pd.DataFrame, pd.DataFrame], Panel]


@dataclass(frozen=True)
class Frame:
    """How a figure is divided: a panel for each combination of the dimensions that are not in `shown`, at most
    `groups`."""

    shown: Sequence[str]
    reason: str  # why nothing is drawn, if there are no rows
    columns: int = 1
    groups: int = MAX_GROUPS

    def drawing(
        self, rows: pd.DataFrame, runs: pd.DataFrame, missing: pd.DataFrame, panel: Draw,
        notes: Iterable[str] = (), legend: tuple[str, ...] = (), title: str = "",
    ) -> Drawing:  # fmt: skip
        """The figure of these rows. `panel` draws the rows of a combination and its runs without results, a subset of
        `missing`. The notes name these runs, and the combinations that are left out."""
        absent = tuple(marks.missing_notes(missing))
        if rows.empty:
            return Drawing(reason=self.reason, absent=absent, title=title)
        present = runs[runs["run"].isin({*rows["run"], *missing["run"]})]
        groups = [(name, panel_runs["run"]) for name, panel_runs in pivoting.split(present, self.shown)]
        groups = [(name, names) for name, names in groups if rows["run"].isin(names).any()]
        panels = {
            name: panel(rows[rows["run"].isin(names)], missing[missing["run"].isin(names)])
            for name, names in groups[: self.groups]
        }
        left_out = "; ".join(name for name, _ in groups[self.groups :])
        more_notes = [f"Not drawn, for want of room: {left_out}. The tables have them."] if left_out else []
        return Drawing(in_grid(panels, self.columns), (*notes, *more_notes), absent, legend, title=title)


def bars_of_runs(
    rows: pd.DataFrame, names: list[str], by: str, title: str, seen: Sequence[tuple], runs: pd.DataFrame,
    missing: pd.DataFrame, reason: str, notes: Iterable[str] = (),
) -> Drawing:  # fmt: skip
    """A stacked bar for each of the first runs: parts as from `marks.placed`, coloured by the column `by`. `names` are
    the values of the column `bar` in their order, `seen` the columns of the tooltip; the others are as of Frame."""
    drawn = names[:MAX_BARS]
    parts, axis = rows[rows["bar"].isin(drawn)], alt.Axis(title=title)
    fills = marks.part_fills(parts, by)

    def panel(data: pd.DataFrame, _: pd.DataFrame) -> alt.LayerChart:
        channels = {"x": alt.X("start:Q", axis=axis), "y": marks.bar_axis(drawn)}
        bars = marks.bars(data, channels, fills, marks.tooltip(data, *seen))
        return bars.properties(width=WIDTH - BAR_NAMES_PX, height=alt.Step(marks.BAR_PX))

    more = f"The first {MAX_BARS} of {len(names)} runs are drawn; the table has all."
    notes = [*notes, *([more] if len(names) > MAX_BARS else [])]
    return Frame(KEYS, reason).drawing(parts, runs, missing, panel, notes)


def in_grid(panels: Mapping[str, Panel], columns: int) -> Spec:
    """The panels under their titles, in lines of `columns` panels."""
    titled = [column(panel, spacing=0, title=_heading(name)) if name else panel for name, panel in panels.items()]
    return _lines(titled, columns, spacing=22)


def side_by_side(
    panels: Mapping[str, alt.Chart | alt.LayerChart], height: int, columns: int | None = None, one_axis: bool = False
) -> Spec:
    """Charts under their titles in lines of `columns` charts, by default one line; a line is as wide as a figure. With
    `one_axis`, only the first chart of a line has an axis."""
    columns = columns or max(len(panels), 2)
    width = (WIDTH - AXIS_PX) // columns - GAP_PX if one_axis else WIDTH // columns - AXIS_PX
    sized = [
        chart.properties(title=alt.TitleParams(name, frame="group"), width=width, height=height)
        for name, chart in panels.items()
    ]
    return _lines(sized, columns, spacing=16)


def _lines(panels: list[Panel], columns: int, spacing: int) -> Spec:
    lines = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    return column(*[row(*line, spacing=GAP_PX) for line in lines], spacing=spacing)


def _heading(text: str) -> alt.TitleParams:
    """The title of panels that belong together."""
    return alt.TitleParams(text, fontWeight="bold", frame="group")
