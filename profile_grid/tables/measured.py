"""The machines of the results, and the results of one machine for the sentences, tables and figures of a question. The
results of two machines are never in one table."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from kernel_tables.kernel_names.short import short_names
from kernel_tables.markdown import escaped
from profile_grid.quantities import count, interval, known
from profile_grid.study.catalogue import SUMMARIES
from profile_grid.study.dimensions import FULLEST_FIRST, MACHINE_DIMENSIONS, MACHINE_KEYS, MODES
from profile_grid.study.stages import NOT_ASKED, STAGES
from profile_grid.tables.names import FORWARD
from profile_grid.tables.on_disk import declared_tables

BY_KEY = {dimension.key: dimension for dimension in MACHINE_DIMENSIONS}
DIGITS_OF_A_DIGEST = 12  # in a title


@dataclass(frozen=True)
class Machine:
    """The values of the machine's dimensions, as text; None if no run has it. `distinct_by` are the dimensions that
    distinguish it from another machine with the same title."""

    facts: tuple[str | None, ...]
    distinct_by: tuple[str, ...] = ()

    def __getattr__(self, key: str) -> str | None:
        if key not in MACHINE_KEYS:
            raise AttributeError(key)
        return self.facts[MACHINE_KEYS.index(key)]

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def profiler(self) -> str:
        """The profiler's name and, for nsys, its version."""
        if self.backend == "torch":
            return "PyTorch's own profiler"
        if self.backend == "nsys":
            return "Nsight Systems" + (f" {self.nsys}" if self.nsys else "")
        return "no profiler"

    @property
    def title(self) -> str:
        """One line that names this machine uniquely."""
        facts = ((fact.heading, getattr(self, fact.key)) for fact in MACHINE_DIMENSIONS if fact.in_title)
        versions = [f"{heading} {value}" for heading, value in facts if value]
        further = [f"{BY_KEY[key].heading} {_short(key, getattr(self, key))}" for key in self.distinct_by]
        return ", ".join([self.device_name or "unknown device", *versions, self.profiler, *further])


def by_machine(runs: pd.DataFrame) -> list[tuple[Machine, list[str]]]:
    """The machines and the names of their runs, in the order of the table. A run that failed before it recorded all
    facts belongs to the first machine that contradicts none of them."""
    groups: dict[Machine, list[str]] = {}
    identities = [_identity(row) for row in runs.to_dict("records")]
    for machine in sorted(set(identities), key=lambda identity: (-_facts(identity), identities.index(identity))):
        _home(machine, groups)
    for name, machine in zip(runs["run"], identities, strict=True):
        groups[_home(machine, groups)].append(name)
    order = {name: position for position, name in enumerate(runs["run"])}
    machines = [(_with_distinct_title(machine, groups), names) for machine, names in groups.items() if names]
    return sorted(machines, key=lambda pair: order[pair[1][0]])


def _with_distinct_title(machine: Machine, others: Iterable[Machine]) -> Machine:
    """The machine with the dimensions in which others of the same title differ from it."""
    twins = [other for other in others if other.title == machine.title]
    differing = [key for key in MACHINE_KEYS if len({getattr(twin, key) for twin in twins}) > 1]
    return replace(machine, distinct_by=tuple(differing))


def command_to_measure_again(runs: pd.DataFrame) -> str:
    """The command that measures exactly these runs again, on the machine where it is typed."""
    rows = runs.to_dict("records")
    measured = [(row["run"], stage) for row in rows for stage in STAGES if row[stage.status_column] != NOT_ASKED]
    files = [f"results/runs/{run}/{stage.result}" for run, stage in measured]
    return "snakemake --cores 1 all --forcerun \\\n    " + " \\\n    ".join(files)


def _short(key: str, fact: str | None) -> str:
    return (fact or "unknown")[: DIGITS_OF_A_DIGEST if key.endswith("_sha256") else None]


def _identity(row: dict) -> Machine:
    return Machine(tuple(str(row[key]) if known(row.get(key)) else None for key in MACHINE_KEYS))


def _facts(machine: Machine) -> int:
    return sum(fact is not None for fact in machine.facts)


def _home(machine: Machine, groups: dict[Machine, list[str]]) -> Machine:
    for other in groups:
        if all(fact in (None, theirs) for fact, theirs in zip(machine.facts, other.facts, strict=True)):
            return other
    groups[machine] = []
    return machine


TIME_OF_KERNELS = "gpu_time_ms"
KERNEL_AND_TIME = ["kernel", TIME_OF_KERNELS]
PLAIN = re.compile(r"[\w:.]+", re.ASCII)  # names that Markdown takes for nothing else


@dataclass(frozen=True)
class Words:
    """The terms for this kind of device."""

    device: str = "GPU"
    kernel: str = "kernel"
    kernels: str = "kernels"
    time: str = "GPU time"


ON_GPU = Words()
ON_CPU = Words(device="CPU", kernel="operator", kernels="operators", time="operator time")


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

    @property
    def steps(self) -> tuple[str, str]:
        """How many steps were timed, and how many captured."""
        timed, captured = (self.runs[name].replace(0, None) for name in ("steps_timed", "steps_captured"))
        return interval(timed, count), interval(captured, count)

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


class TablesOfRuns(Mapping[str, pd.DataFrame]):
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
    of_machine = TablesOfRuns(names, tables)
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
