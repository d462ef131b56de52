"""A step seen from inside: its flame view by range path, and its timeline. Names are numbers into one list."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from profile_grid.figures.style import GREY, PHASES, family_style
from profile_grid.merging.timeline import KERNEL, LAUNCH, RANGE
from profile_grid.page.marks import PATTERNS, text_of
from profile_grid.page.names import Names
from profile_grid.tables.classes import family

NO_PARENT = -1
SEPARATOR = " > "


def flame(kernels: pd.DataFrame, run: str, names: Names) -> dict[str, list]:
    """The nodes of one run's step: parent (position, -1 for the step), name (number), ms per step, launches, color.

    Ranges by path, kernels as leaves; a node's time holds that of its children. Parents stand before their children.
    """
    own = kernels[(kernels["run"] == run) & (kernels["step"] >= 0)]
    own = own.sort_values("phase", key=lambda phases: phases.map(_phase_rank), kind="stable")
    steps = max(own["step"].nunique(), 1)
    keys = ["phase", "range", "kernel", "class"]
    leaves = own.assign(range=own["range"].fillna("")).groupby(keys, sort=False)[["total_ns", "launches"]].sum()
    nodes: dict[tuple[str, ...], list] = {(): [NO_PARENT, names.number("step"), 0, 0, GREY]}
    for (phase, path, kernel, kernel_class), (total_ns, launches) in zip(leaves.index, leaves.to_numpy(), strict=True):
        ranges = (phase, *(path.split(SEPARATOR) if path else ()))
        color = PHASES.get(phase, (GREY, ""))[0]
        for length in range(1, len(ranges) + 1):
            parent = list(nodes).index(ranges[: length - 1])
            nodes.setdefault(ranges[:length], [parent, names.number(ranges[length - 1]), 0, 0, color])
        parent = list(nodes).index(ranges)
        leaf = (*ranges, f"\0{kernel}")  # a range and a kernel may bear the same name
        nodes[leaf] = [parent, names.number(kernel), 0, 0, family_style(family(kernel_class))[0]]
        for length in range(len(leaf) + 1):
            nodes[leaf[:length]][2] += total_ns / 1e6 / steps
            nodes[leaf[:length]][3] += launches / steps
    columns = zip(*nodes.values(), strict=True)
    return dict(zip(("parent", "name", "ms", "launches", "color"), map(list, columns), strict=True))


def _phase_rank(phase: str) -> int:
    """The place of a phase in a step; phases of other programs come last."""
    return list(PHASES).index(phase) if phase in PHASES else len(PHASES)


def timeline_figure(table: pd.DataFrame, names: Names) -> go.Figure | None:
    """One bar per range, launch and activity of a step, a lane per thread and depth or stream; None without rows."""
    if table.empty:
        return None
    table = table.assign(lane_name=_lane_names(table), kind=_kinds(table))
    figure = go.Figure()
    for kind, own in table.groupby("kind", sort=False):
        color, hatch = _kind_style(kind, own["track"].iloc[0])
        paths = [[names.number(name), names.number(path)] for name, path in zip(own["name"], own["path"], strict=True)]
        figure.add_trace(
            go.Bar(
                base=own["start_ns"] / 1e6, x=(own["end_ns"] - own["start_ns"]) / 1e6, y=own["lane_name"],
                orientation="h", name=text_of(kind), customdata=paths, meta={"named": True}, width=0.86,
                marker={"color": color, "line": {"width": 0}, "pattern": {"shape": PATTERNS[hatch], "size": 4}},
                hovertemplate="%{text}<br>from %{base:.4f} ms, %{x:.4f} ms long<extra></extra>", textposition="none",
            )
        )  # fmt: skip
    lanes = list(dict.fromkeys(table["lane_name"]))
    order = {RANGE: 0, LAUNCH: 1, KERNEL: 2}
    track = dict(zip(table["lane_name"], table["track"], strict=True))
    lanes.sort(key=lambda lane: (order[track[lane]], lane))
    figure.update_yaxes(categoryorder="array", categoryarray=lanes[::-1], fixedrange=True)
    figure.update_xaxes(title_text="ms since the step began", range=[0, table["end_ns"].max() / 1e6 * 1.01])
    legend = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0}
    return figure.update_layout(
        barmode="overlay", height=190 + 34 * len(lanes), dragmode="zoom", legend=legend,
        margin={"l": 150, "r": 14, "t": 10, "b": 130},
    )  # fmt: skip


def _lane_names(table: pd.DataFrame) -> list[str]:
    words = {RANGE: "ranges", LAUNCH: "API calls", KERNEL: "device"}
    return [
        f"{words[track]}, {lane}" + (f", level {depth}" if track == RANGE else "")
        for track, lane, depth in zip(table["track"], table["lane"], table["depth"], strict=True)
    ]


def _kinds(table: pd.DataFrame) -> list[str]:
    """What the legend tells apart: phases of ranges, API calls, families of activities."""
    return [_kind(*row) for row in zip(table["track"], table["name"], table["class"], table["path"], strict=True)]


def _kind(track: str, name: str, kernel_class: str, path: str) -> str:
    if track == LAUNCH:
        return "API calls"
    if track == KERNEL:
        return family(kernel_class)
    inside = [phase for phase in PHASES if phase in path.split(SEPARATOR)]
    return f"ranges: {inside[0]}" if inside else "ranges"


def _kind_style(kind: str, track: str) -> tuple[str, str]:
    if track == KERNEL:
        return family_style(kind)
    return PHASES.get(kind.removeprefix("ranges: "), (GREY, "")) if track == RANGE else (GREY, "")
