"""All figures by name: those that the questions of the catalogue define."""

from collections.abc import Iterable
from importlib import import_module

from profile_grid.figures.drawing import Figure
from profile_grid.study.catalogue import QUESTIONS, Question


def all_figures(questions: Iterable[Question] = QUESTIONS) -> dict[str, Figure]:
    """The figures of these questions by name, in the order of the questions and of the figures of each."""
    figures = [
        figure
        for question in questions
        if question.figures
        for figure in import_module(f"{question.package}.figure").FIGURES
    ]
    return {figure.name: figure for figure in figures}
