"""The flame view of a step: its ranges by path, kernels as leaves. Names are numbers into one list."""

from __future__ import annotations

import pandas as pd

from profile_grid.figures.drawing import Tables
from profile_grid.figures.theme import GREY, PHASES, family_style
from profile_grid.page.names import Names
from profile_grid.study.dimensions import FULLEST_FIRST
from profile_grid.tables.classes import family
from profile_grid.tables.range_paths import names_in

MOST_RUNS = 60
NO_PARENT = -1
KEYS = ["phase", "range", "kernel", "class"]


def flames(tables: Tables, names: Names) -> tuple[dict[str, dict], str]:
    """The flame view of the runs that hold kernels, fullest mode first, as many as there is room for; and a sentence on
    the others."""
    rank = dict(zip(tables["runs"]["run"], tables["runs"]["mode"].map(FULLEST_FIRST.index), strict=True))
    present = sorted(dict.fromkeys(tables["kernels"]["run"]), key=rank.__getitem__)
    shown, left_out = present[:MOST_RUNS], len(present) - MOST_RUNS
    chosen = tables["kernels"][tables["kernels"]["run"].isin(shown)]
    by_run = {str(run): own for run, own in chosen.groupby("run", sort=False, observed=True)}
    sentence = f"For want of room {left_out} more runs have no flame view here: kernels.csv has their kernels."
    return {run: flame(by_run[run], names) for run in shown}, sentence if left_out > 0 else ""


def flame(kernels: pd.DataFrame, names: Names) -> dict[str, list]:
    """The nodes of the step that these kernels belong to: parent (position, -1 for the step), name (number), ms per
    step, launches, color.

    A node's time holds that of its children. Parents stand before their children.
    """
    own = kernels[kernels["step"] >= 0]
    own = own.assign(**{key: own[key].astype("object").fillna("").astype("str") for key in KEYS})
    own = own.sort_values("phase", key=lambda phases: phases.map(_phase_rank), kind="stable")
    leaves = own.groupby(KEYS, sort=False)[["total_ns", "launches"]].sum() / max(own["step"].nunique(), 1)
    nodes: dict[tuple[str, ...], list] = {(): [NO_PARENT, names.number("step"), 0, 0, GREY]}
    place = {(): 0}
    for (phase, path, kernel, kernel_class), (time_ns, launches) in zip(leaves.index, leaves.to_numpy(), strict=True):
        ranges = (phase, *names_in(path))
        leaf = (*ranges, f"\0{kernel}")  # a range and a kernel may bear the same name
        color = PHASES.get(phase, (GREY, 0))[0]
        looks = [(names.number(name), color) for name in ranges]
        looks.append((names.kernel(kernel), family_style(family(kernel_class))[0]))
        for length, (number, color) in enumerate(looks, 1):
            place.setdefault(leaf[:length], len(place))
            nodes.setdefault(leaf[:length], [place[leaf[: length - 1]], number, 0, 0, color])
        for length in range(len(leaf) + 1):
            nodes[leaf[:length]][2] += time_ns / 1e6
            nodes[leaf[:length]][3] += launches
    columns = zip(*nodes.values(), strict=True)
    return dict(zip(("parent", "name", "ms", "launches", "color"), map(list, columns), strict=True))


def _phase_rank(phase: str) -> int:
    """The place of a phase in a step; phases of other programs come last."""
    return list(PHASES).index(phase) if phase in PHASES else len(PHASES)
