"""Figure of (n): the bus bandwidth of all-reduce alone against its size, a line per number of GPUs."""

from __future__ import annotations

import altair as alt
import pandas as pd

from profile_grid.figures import marks
from profile_grid.figures.drawing import Drawing, Figure, Tables
from profile_grid.figures.layout import Spec, alone
from profile_grid.figures.scales import Log, Series
from profile_grid.figures.splitting import Group, split, stacked
from profile_grid.figures.theme import WIDTH
from profile_grid.quantities import interval, significant
from profile_grid.study.dimensions import GPUS

AXIS_PX, HEIGHT_PX = 70, 200
NOT_MEASURED = "All-reduce alone was measured of no run (stages: [all_reduce])."


def draw(tables: Tables) -> Drawing:
    """Points at the mean times."""
    runs, rows = tables["runs"], tables["communication_all_reduce"]
    if rows.empty:
        return Drawing(reason=NOT_MEASURED)
    groups, left_out = split(runs[runs["run"].isin(rows["run"])], (GPUS.key,))

    def panels(group: Group) -> Spec:
        return alone(_panel(group.of(rows)).properties(width=WIDTH - AXIS_PX, height=HEIGHT_PX))

    return Drawing(stacked(groups, panels), tuple(left_out))


def _panel(rows: pd.DataFrame) -> alt.LayerChart:
    rows = rows.assign(megabytes=rows["bytes"] / 1e6, ranks=[GPUS.words(count) for count in rows[GPUS.key]])
    x, y = Log.around(rows["megabytes"], WIDTH - AXIS_PX), Log.around(rows["bus_gb_per_s"], HEIGHT_PX)
    series = Series("ranks", tuple(GPUS.words(count) for count in sorted(set(rows[GPUS.key]))))
    seen = marks.tooltip(
        rows, ("ranks", "GPUs"), ("megabytes", "MB", marks.DIGITS), ("mean_ms", "ms", marks.DIGITS),
        ("bus_gb_per_s", "bus (GB/s)", marks.DIGITS),
    )  # fmt: skip
    base = alt.Chart(rows).encode(
        x=alt.X("megabytes:Q", scale=x.scale, axis=x.axis("size (MB)")),
        y=alt.Y("bus_gb_per_s:Q", scale=y.scale, axis=y.axis("bus bandwidth (GB/s)")),
        color=series.color(),
    )
    points = base.mark_point(filled=True, size=30).encode(shape=series.shape(), tooltip=seen)
    return alt.layer(base.mark_line().encode(strokeDash=series.dash()), points)


def caption(tables: Tables) -> str:
    """The range of the bandwidth."""
    rows = tables["communication_all_reduce"]
    if rows.empty:
        return NOT_MEASURED
    return f"All-reduce alone reaches {interval(rows['bus_gb_per_s'], significant)} GB/s on the bus."


ALL_REDUCE = Figure(
    "all_reduce", "All-reduce alone, by size", draw, caption, tables=("runs", "communication_all_reduce")
)
