"""All figures by name: those that the questions of the catalogue define."""

from __future__ import annotations

from importlib import import_module

from profile_grid.figures.drawing import Figure
from profile_grid.study.catalogue import QUESTIONS


def all_figures() -> dict[str, Figure]:
    """The figures by name, in the order of the questions and of each question's own."""
    found = [
        figure
        for question in QUESTIONS
        if question.figures
        for figure in import_module(f"{question.package}.figure").FIGURES
    ]
    return {figure.name: figure for figure in found}
