"""The tables behind all answers: every question's own, from the merged tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module

import pandas as pd

from profile_grid.study.catalogue import QUESTIONS, SUMMARIES, summaries_of, workloads_of
from profile_grid.study.described import SummaryTable
from profile_grid.tables.conservation import check_conservation
from profile_grid.tables.per_pass import Merged


class Summaries(Mapping[str, pd.DataFrame]):
    """The tables of all answers by name, each made when it is first read.

    Raises NotConserved where the kernels of a phase do not add up to that phase, or phases to their step.
    """

    def __init__(self, merged: Mapping[str, pd.DataFrame]) -> None:
        self._merged = Merged(merged)
        self._makers = dict(declared_tables())
        self._made: dict[str, pd.DataFrame] = {}
        if "kernels" in merged:
            check_conservation(self._merged.kernels, self._merged["phases"])

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._made:
            self._made[name] = self._makers[name].make(self._merged)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(summaries_of(workloads_of(self._merged["runs"].to_dict("records"))))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def summary_tables(merged: Mapping[str, pd.DataFrame], names: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
    """The tables of all answers by name, or those of these names. Raises as Summaries does."""
    tables = Summaries(merged)
    return {name: tables[name] for name in tables if names is None or name in names}


def declared_tables() -> Iterator[tuple[str, SummaryTable]]:
    """Name, maker and description of every table that a question is answered from, once, in the catalogue's order."""
    found: dict[str, SummaryTable] = {}
    for question in QUESTIONS:
        if question.tables:
            tables = import_module(f"{question.package}.table").TABLES
            found = {name: tables[name] for name in question.tables} | found
    return ((name, found[name]) for name in SUMMARIES)
