"""The timeline of one step: what its threads asked for, and what ran on the device."""

from __future__ import annotations

import altair as alt
import pandas as pd

from kernel_tables.attribution.path_text import names_in
from kernel_tables.page.colors import GREY, PHASES
from kernel_tables.page.names import Names
from profile_grid.figures.layout import Spec, alone
from profile_grid.figures.marks import name_axis
from profile_grid.figures.paper import specification
from profile_grid.figures.scales import legend
from profile_grid.figures.theme import family_style, fill, in_drawing_order
from profile_grid.merging.timeline import KERNEL, LAUNCH, RANGE
from profile_grid.page.charts import compact
from profile_grid.tables.classes import family

LANE_PX = 30
NAMED = ("name", "path")  # the columns of its data that hold numbers of names
RANK_END = ": "  # behind the rank in the name of a lane
TRACKS = {RANGE: "ranges", LAUNCH: "API calls", KERNEL: "device"}


def timeline_chart(table: pd.DataFrame, names: Names) -> Spec | None:
    """One bar per range, launch and activity of a step, a lane per thread and depth or stream; None without rows.

    The bars follow the parameter `zoom`, which holds the part of the step that is seen."""
    if table.empty:
        return None
    rows = timeline_rows(table, names)
    lanes, fills = _lanes(rows), _fills(rows)
    whole = alt.Scale(domain=[0, float(rows["end"].max()) * 1.01], nice=False)
    zoom = alt.selection_interval(name="zoom", bind="scales", encodings=["x"], zoom="wheel![event.ctrlKey]")
    chart = alt.Chart(rows.drop(columns="track"), width="container", height=LANE_PX * len(lanes))
    bars = (
        chart.mark_bar(clip=True)
        .add_params(zoom)
        .encode(
            x=alt.X("start:Q", scale=whole, axis=alt.Axis(title="ms since the step began")),
            x2="end",
            y=alt.Y("lane:N", scale=alt.Scale(domain=lanes, paddingInner=0.1), axis=name_axis()),
            fill=alt.Fill(
                "kind:N", scale=alt.Scale(domain=list(fills), range=list(fills.values())), legend=legend(list(fills))
            ),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("path:N", title="in"),
                alt.Tooltip("start:Q", title="from (ms)", format=".4f"),
                alt.Tooltip("ms:Q", title="length (ms)", format=".4f"),
            ],
        )
    )
    return compact(specification(alone(bars)))


def timeline_rows(table: pd.DataFrame, names: Names) -> pd.DataFrame:
    """One row per bar: track, lane and kind, start, end and ms in milliseconds, numbers of its name and of its path."""
    start, end = table["start_ns"] / 1e6, table["end_ns"] / 1e6
    rows = pd.DataFrame({"track": table["track"], "lane": _lane_names(table), "kind": _kinds(table)})
    named = zip(table["track"], table["name"], strict=True)
    name = [names.kernel(name) if track == KERNEL else names.number(name) for track, name in named]
    path = [names.number(path) for path in table["path"]]
    return rows.assign(start=start, end=end, ms=end - start, name=name, path=path)


def _lanes(rows: pd.DataFrame) -> list[str]:
    """The lanes of each rank, one rank above the other, from the ranges down to the device."""
    tracks, order = dict(zip(rows["lane"], rows["track"], strict=True)), list(TRACKS)

    def place(lane: str) -> tuple:
        rank = lane.rpartition(RANK_END)[0]
        return len(rank), rank, order.index(tracks[lane]), lane

    return sorted(tracks, key=place)


def _fills(rows: pd.DataFrame) -> dict[str, object]:
    """The fill of each kind of bar: phases of ranges and API calls first, then families of activities."""
    kinds = dict(zip(rows["kind"], rows["track"], strict=True))
    of_threads = sorted((kind for kind, track in kinds.items() if track != KERNEL), key=_rank)
    of_device = in_drawing_order(kind for kind, track in kinds.items() if track == KERNEL)
    return {kind: fill(*_style(kind, kinds[kind])) for kind in (*of_threads, *of_device)}


def _lane_names(table: pd.DataFrame) -> list[str]:
    names = []
    for track, lane, depth in zip(table["track"], table["lane"], table["depth"], strict=True):
        rank, end, place = lane.rpartition(RANK_END)
        names.append(f"{rank}{end}{TRACKS[track]}, {place}" + (f", level {depth}" if track == RANGE else ""))
    return names


def _kinds(table: pd.DataFrame) -> list[str]:
    """What the legend tells apart: phases of ranges, API calls, families of activities."""
    return [_kind(*row) for row in zip(table["track"], table["class"], table["path"], strict=True)]


def _kind(track: str, kernel_class: str, path: str) -> str:
    if track == LAUNCH:
        return TRACKS[LAUNCH]
    if track == KERNEL:
        return family(kernel_class)
    inside = [phase for phase in PHASES if phase in names_in(path)]
    return f"ranges: {inside[0]}" if inside else "ranges"


def _rank(kind: str) -> int:
    """The place of a kind of range in a step; API calls, and ranges outside the phases, come first."""
    phase = kind.removeprefix("ranges: ")
    return list(PHASES).index(phase) if phase in PHASES else -1


def _style(kind: str, track: str) -> tuple[str, int]:
    if track == KERNEL:
        return family_style(kind)
    return PHASES.get(kind.removeprefix("ranges: "), (GREY, 0))
