"""Figures of (i): the peak of a step by category, and the course of one step."""

from profile_grid.figures.drawing import Figure
from profile_grid.questions.i_memory import categories_figure, timeline_figure

FIGURES = (
    Figure(
        "memory_categories", "Memory at the peak of a step, by category",
        categories_figure.draw, categories_figure.result, tables=("runs", "memory_peak"),
    ),
    Figure(
        "memory_timeline", "Memory during the step with the highest peak, by category",
        timeline_figure.draw, timeline_figure.result, tables=("runs", "memory_peak", "memory_timeline"),
    ),
)  # fmt: skip
