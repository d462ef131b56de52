"""Figures of (i): what is live at the fullest moment of a step, and the course of one step."""

from __future__ import annotations

from profile_grid.figures.drawing import Figure
from profile_grid.questions.i_memory import categories_figure, timeline_figure

FIGURES = (
    Figure(
        "memory_categories", "Memory at the fullest moment of a step",
        categories_figure.draw, categories_figure.caption, tables=("runs", "memory_peak"),
    ),
    Figure(
        "memory_timeline", "Memory in the course of a step",
        timeline_figure.draw, timeline_figure.caption, tables=("runs", "memory_peak", "memory_timeline"),
    ),
)  # fmt: skip
