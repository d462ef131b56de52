"""The summary tables of all questions, made from the merged tables."""

from collections.abc import Collection, Iterator, Mapping

import pandas as pd

from profile_grid.study.catalogue import SUMMARY_NAMES, summary_names, workloads_of
from profile_grid.tables import conservation, on_disk, per_pass


class Summaries(Mapping[str, pd.DataFrame]):
    """The summary tables with these names, by default all that the runs have, by name; each is made on first use.

    Raises NotConserved if the kernels of a phase do not add up to that phase, or phases to their step, and WrongTable
    if a table differs from its declaration.
    """

    def __init__(self, merged: Mapping[str, pd.DataFrame], names: Collection[str] = SUMMARY_NAMES) -> None:
        self._merged, self._names = per_pass.Merged(merged), names
        self._tables: dict[str, pd.DataFrame] = {}
        if "kernels" in merged:
            conservation.check_conservation(self._merged.kernels, self._merged["phases"])

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._tables:
            spec = on_disk.declared_tables()[name]
            self._tables[name] = spec.make(self._merged)
            spec.check(self._tables[name])
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        names = summary_names(workloads_of(self._merged["runs"].to_dict("records")))
        return iter([name for name in names if name in self._names])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def summary_tables(
    merged: Mapping[str, pd.DataFrame], names: Collection[str] = SUMMARY_NAMES
) -> dict[str, pd.DataFrame]:
    """The tables of Summaries that these runs have, all made at once."""
    return dict(Summaries(merged, names))
