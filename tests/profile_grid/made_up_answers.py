"""What the tests of all questions share: sentences and tables from made-up runs."""

from dataclasses import replace
from functools import cache

import pandas as pd

from profile_grid.documents.documents import document_names, documents, section
from profile_grid.documents.summaries import Summaries
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.tables.measured import by_machine
from tests.profile_grid.made_up import Made, forward_kernels, merged, training_kernels
from tests.profile_grid.made_up_grid import WithSummaries
from tests.profile_grid.test_answers import PROVENANCE


class Said:
    """The sentences of the first machine by the letter of their question, made when they are read: all of them, with
    their tables, take seconds. So nothing goes through all."""

    __iter__ = None

    def __init__(self, runs: list[Made]):
        self.tables = merged(runs)
        self.questions = {question[0]: question for question in document_names(self.tables["runs"])}

    @cache  # noqa: B019
    def __getitem__(self, letter: str) -> str:
        return told_of(self.questions[letter], self.tables)


def told(question: str, runs: list[Made]) -> str:
    """The sentences of one question alone, of the first machine."""
    return told_of(question, merged(runs))


def told_of(question: str, tables: dict[str, pd.DataFrame]) -> str:
    """The same of merged tables."""
    machine, names = by_machine(tables["runs"])[0]
    return " ".join(
        section(machine, names, tables["runs"], own_tables(question, tables), [question]).sentences[question]
    )


def answered(question: str, runs: list[Made]) -> str:
    """The document of one question alone, made of its own tables."""
    return document_of(question, merged(runs))


def document_of(question: str, tables: dict[str, pd.DataFrame]) -> str:
    """The same of merged tables."""
    return documents(own_tables(question, tables), tables["runs"], PROVENANCE, [question])[question]


def own_tables(question: str, tables: dict[str, pd.DataFrame]) -> Summaries:
    """The tables that one question is answered from: all that it may read."""
    return Summaries(tables, next(one.tables for one in QUESTIONS if one.name == question))


def summaries_of(question: str, *runs: Made) -> Summaries:
    return own_tables(question, merged(list(runs)))


def forward(**changes) -> list[Made]:
    return [Made(**{"kernels": forward_kernels(), **changes})]


def after_forward(run: Made, **times) -> Made:
    """The run with other kernels after its forward pass."""
    kept = tuple(kernel for kernel in run.kernels if kernel.phase == "forward")
    return replace(run, kernels=kept + training_kernels(run.mode, **times))


def without_figures(run: Made, **others) -> Made:
    return replace(run, kernels=(), others=others)


def summaries(*runs: Made) -> WithSummaries:
    """The tables of answers by name, made when they are read."""
    return WithSummaries(merged(list(runs)))


def rows(table: pd.DataFrame, *columns: str) -> list[tuple]:
    return list(table[list(columns)].itertuples(index=False, name=None))
