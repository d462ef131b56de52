"""The results of one machine, for the sentences, tables and figures of a question."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from kernel_tables.kernel_names.short import short_names
from kernel_tables.markdown import escaped
from profile_grid.study.catalogue import SUMMARIES
from profile_grid.study.dimensions import FULLEST_FIRST, MODES
from profile_grid.tables.machines import Machine
from profile_grid.tables.names import FORWARD
from profile_grid.tables.on_disk import declared_tables

TIME_OF_KERNELS = "gpu_time_ms"
KERNEL_AND_TIME = ["kernel", TIME_OF_KERNELS]
PLAIN = re.compile(r"[\w:.]+", re.ASCII)  # names that Markdown takes for nothing else


@dataclass(frozen=True)
class Words:
    """The terms for this kind of device."""

    device: str = "GPU"
    kernel: str = "kernel"
    kernels: str = "kernels"
    kernel_title: str = "CUDA kernel"
    time: str = "GPU time"


ON_GPU = Words()
ON_CPU = Words(device="CPU", kernel="operator", kernels="operators", kernel_title="ATen operator", time="operator time")


@dataclass(frozen=True)
class Measured:
    """The runs of one machine, the summary tables of these runs, and a short name per kernel."""

    machine: Machine
    runs: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    short_names: dict[str, str]

    @property
    def words(self) -> Words:
        return ON_CPU if self.machine.on_cpu else ON_GPU

    @property
    def inference_mode(self) -> str:
        """The mode whose forward pass answers for inference: `forward` where the grid has it."""
        present = list(self.runs["mode"])
        return next((mode for mode in MODES if mode in present), present[0])

    @property
    def training_mode(self) -> str | None:
        """The mode that answers for training: the complete step if the grid has it."""
        present = set(self.runs["mode"])
        return next((mode for mode in FULLEST_FIRST if mode != FORWARD and mode in present), None)

    @property
    def has_kernels(self) -> bool:
        """Whether any table of kernels has a row: even a complete capture may have no kernels."""
        return any(not self.tables[name].empty for name in _with_columns(self.tables, [TIME_OF_KERNELS]))

    def inference(self, name: str) -> pd.DataFrame:
        """The rows of a summary table that belong to the runs of the inference mode."""
        return self.mode(name, self.inference_mode)

    def mode(self, name: str, mode: str) -> pd.DataFrame:
        """The rows of a summary table that belong to the runs of this mode."""
        table = self.tables[name]
        return table[table["mode"] == mode]

    def label(self, kernel: str) -> str:
        """A kernel in Markdown: its name as code if that is short, else its short name in bold."""
        short = self.short_names[kernel]
        return f"`{kernel}`" if short == kernel and PLAIN.fullmatch(kernel) else f"**{escaped(short)}**"


class OfRuns(Mapping[str, pd.DataFrame]):
    """The rows of these runs in each table; a table is read or made when it is first asked for."""

    def __init__(self, names: list[str], tables: Mapping[str, pd.DataFrame]) -> None:
        self._names, self._tables = names, tables
        self._selected: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._selected:
            table = self._tables[name]
            self._selected[name] = table[table["run"].isin(self._names)]
        return self._selected[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def measured_on(machine: Machine, names: list[str], runs: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> Measured:
    """The results of these runs, all of one machine."""
    of_machine = OfRuns(names, tables)
    return Measured(machine, runs[runs["run"].isin(names)], of_machine, names_of_summary_kernels(of_machine))


def names_of_summary_kernels(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """A short name per kernel in the summary tables, and so in the documents of a machine; those with the most time in
    all runs get theirs first.

    Figures and page choose other names for their further kernels.
    """
    kernel_times = [tables[name][KERNEL_AND_TIME] for name in _with_columns(tables, KERNEL_AND_TIME)]
    if not kernel_times:
        return {}
    times = pd.concat(kernel_times).groupby("kernel", sort=False, observed=True).sum().reset_index()
    times = times.sort_values(["gpu_time_ms", "kernel"], ascending=[False, True])
    return short_names(times["kernel"])


def _with_columns(tables: Mapping[str, pd.DataFrame], columns: list[str]) -> list[str]:
    """The summary tables that are declared with these columns; no table is read or made for that."""
    summaries = [name for name in tables if name in SUMMARIES]
    return [name for name in summaries if {*columns} <= {*declared_tables()[name].all_names}]
