"""The timeline of one step of a run: ranges and calls of its threads, and what ran on the device."""

import pandas as pd

from kernel_tables.attribution.path_text import names_in
from kernel_tables.page.names import Names
from kernel_tables.page.timeline import Timeline, TimelineBar, lane_title, timeline
from kernel_tables.views.timeline import KERNEL, TRACKS
from profile_grid.stages.capture.timeline import MAIN
from profile_grid.tables.names import STEP

RANK_END = ": "  # after the rank in the name of a lane


def run_timeline(table: pd.DataFrame, names: Names) -> Timeline | None:
    """The timeline of a step from its table: a lane per thread and level of ranges, per calling thread, and per stream,
    rank by rank; None without rows."""
    rows = table.rename(columns={"class": "kernel_class"}).itertuples(index=False)
    return timeline(map(_bar, rows), names) if len(table) else None


def _bar(row) -> TimelineBar:
    """The bar of a row of the table."""
    rank, end, device = row.lane.rpartition(RANK_END)
    level = 0 if row.track == KERNEL else row.depth
    lane = (len(rank), rank, TRACKS.index(row.track), device != MAIN, len(device), device, level)
    title = lane_title(row.track, f"device, {device}" if row.track == KERNEL else device, level)
    path = names_in(row.path)
    below = tuple(path[path.index(STEP) + 1 :] if STEP in path else path)
    return TimelineBar(
        lane, f"{rank}{end}{title}", row.track, row.name, row.kernel_class, below, row.start_ns, row.end_ns
    )
