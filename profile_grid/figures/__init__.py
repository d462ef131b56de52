"""The figures: each a pure function from the tables of results/tables to a matplotlib Figure.

`tables` is a dict of DataFrames by name, of one machine (`rows.of_one_machine`); `machine` is the line that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from profile_grid.figures import kernels, model_parts, times
from profile_grid.figures.captions import caption
from profile_grid.figures.rows import of_one_machine
from profile_grid.figures.style import drawing

TABLES = ("runs", "timings", "kernels", "phases", "ranges", "class_shares", "attention")
PNG_DPI = 200


@dataclass(frozen=True)
class FigureKind:
    """One figure of the project: its file name, its title, and the function that draws it."""

    name: str
    title: str
    draw: Callable[[dict[str, pd.DataFrame], str], Figure]


KINDS = (
    FigureKind("phase_times", times.PHASE_TIMES, times.phase_times),
    FigureKind("launch_bound", times.LAUNCH_BOUND, times.launch_bound),
    FigureKind("top_kernels", kernels.TOP_KERNELS, kernels.top_kernels),
    FigureKind("class_shares", kernels.CLASS_SHARES, kernels.class_shares),
    FigureKind("attention", model_parts.ATTENTION, model_parts.attention),
    FigureKind("scaling", times.SCALING, times.scaling),
    FigureKind("roofline", model_parts.ROOFLINE, model_parts.roofline),
)
NAMES = tuple(kind.name for kind in KINDS)


def figure(name: str, tables: dict[str, pd.DataFrame]) -> Figure:
    """The figure of that name, of the machine with the most runs; what is left out is written under it."""
    kind = next(kind for kind in KINDS if kind.name == name)
    of_machine, machine, left_out = of_one_machine(tables)
    with drawing():
        drawn = kind.draw(of_machine, " ".join([machine, *left_out]))
    return drawn


def save(drawn: Figure, path: Path, suffix: str) -> None:
    """Writes one file, ".svg" or ".png": the same bytes for the same figure, without dates or paths."""
    metadata = {"Date": None, "Creator": None} if suffix == ".svg" else {"Software": None}
    with drawing():
        drawn.savefig(path, format=suffix[1:], dpi=PNG_DPI, bbox_inches="tight", pad_inches=0.08, metadata=metadata)


__all__ = ["KINDS", "NAMES", "TABLES", "FigureKind", "caption", "figure", "save"]
