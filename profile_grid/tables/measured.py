"""The machines of the results, and the results of one machine, from which each question makes its sentences, tables and
figures. Results of two machines are never in one table."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd

from kernel_tables.kernel_names.short import short_names
from kernel_tables.markdown import escaped
from profile_grid.quantities import count, interval, known
from profile_grid.study.catalogue import SUMMARY_NAMES
from profile_grid.study.dimensions import FULLEST_FIRST, MACHINE_DIMENSIONS, MACHINE_KEYS, MODES
from profile_grid.study.stages import NOT_ASKED, STAGES
from profile_grid.tables.names import FORWARD
from profile_grid.tables.on_disk import declared_tables

HEADINGS = {dimension.key: dimension.heading for dimension in MACHINE_DIMENSIONS}
DIGEST_DIGITS = 12  # in a title
KERNEL_TIME = "gpu_time_ms"  # the column with the time of a kernel in summary tables
PLAIN_NAME = re.compile(r"[\w:.]+", re.ASCII)  # has no character with a meaning in Markdown


@dataclass(frozen=True)
class Machine:
    """One machine: `facts` are the values of MACHINE_DIMENSIONS, as text, None if unknown; each is also an attribute.
    `distinct_by`: keys of further dimensions in the title, without which another machine would have the same title."""

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
        """One line that names this machine; with `distinct_by`, no other machine of the results has the same."""
        facts = ((fact.heading, getattr(self, fact.key)) for fact in MACHINE_DIMENSIONS if fact.in_title)
        versions = [f"{heading} {value}" for heading, value in facts if value]
        further = [f"{HEADINGS[key]} {_title_value(key, getattr(self, key))}" for key in self.distinct_by]
        return ", ".join([self.device_name or "unknown device", *versions, self.profiler, *further])


class MachineRuns(NamedTuple):
    """A machine and the names of its runs."""

    machine: Machine
    run_names: list[str]


def by_machine(runs: pd.DataFrame) -> list[MachineRuns]:
    """The runs of each machine, in the order of the table. A run that failed before it recorded all facts belongs to a
    machine that contradicts none of them: the one with the most facts, then the first."""
    recorded = [_recorded_machine(row) for row in runs.to_dict("records")]
    machines: list[Machine] = []  # the machine with the most facts first, so that runs with fewer facts join it
    for machine in sorted(dict.fromkeys(recorded), key=lambda machine: machine.facts.count(None)):
        if _first_match(machine, machines) is None:
            machines.append(machine)
    names_by_machine: dict[Machine, list[str]] = {}
    for name, machine in zip(runs["run"], recorded, strict=True):
        names_by_machine.setdefault(_first_match(machine, machines), []).append(name)
    return [MachineRuns(_with_distinct_title(machine, machines), names) for machine, names in names_by_machine.items()]


def _with_distinct_title(machine: Machine, machines: Iterable[Machine]) -> Machine:
    """The machine with `distinct_by`: the dimensions in which the machines differ that would have its title."""
    same_title = [other for other in machines if other.title == machine.title]
    differing = [key for key in MACHINE_KEYS if len({getattr(other, key) for other in same_title}) > 1]
    return replace(machine, distinct_by=tuple(differing))


def command_to_measure_again(runs: pd.DataFrame) -> str:
    """The command that measures exactly these runs again, on the machine on which it is run."""
    rows = runs.to_dict("records")
    measured = [(row["run"], stage) for row in rows for stage in STAGES if row[stage.status_column] != NOT_ASKED]
    files = [f"results/runs/{run}/{stage.result_file}" for run, stage in measured]
    return "snakemake --cores 1 all --forcerun \\\n    " + " \\\n    ".join(files)


def _title_value(key: str, fact: str | None) -> str:
    text = fact or "unknown"
    return text[:DIGEST_DIGITS] if key.endswith("_sha256") else text


def _recorded_machine(row: dict) -> Machine:
    """The machine with the facts that this run recorded."""
    return Machine(tuple(str(row[key]) if known(row.get(key)) else None for key in MACHINE_KEYS))


def _first_match(machine: Machine, machines: Iterable[Machine]) -> Machine | None:
    """The first of the machines that has all known facts of this one; None if there is none."""
    for other in machines:
        if all(fact in (None, theirs) for fact, theirs in zip(machine.facts, other.facts, strict=True)):
            return other
    return None


@dataclass(frozen=True)
class Words:
    """What sentences call the device, its kernels and their time."""

    device: str = "GPU"
    kernel: str = "kernel"
    kernels: str = "kernels"
    time: str = "GPU time"


ON_GPU = Words()
ON_CPU = Words(device="CPU", kernel="operator", kernels="operators", time="operator time")


class StepsInWords(NamedTuple):
    """How many steps of a run were timed, and how many captured, in words."""

    timed: str
    captured: str


@dataclass(frozen=True)
class Measured:
    """The results of one machine: its runs, their summary tables by name, and short names by kernel."""

    machine: Machine
    runs: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    short_names: dict[str, str]

    @property
    def words(self) -> Words:
        return ON_CPU if self.machine.on_cpu else ON_GPU

    @property
    def inference_mode(self) -> str:
        """The mode whose forward pass counts as inference: `forward` if the grid has it."""
        present = list(self.runs["mode"])
        return next((mode for mode in MODES if mode in present), present[0])

    @property
    def training_mode(self) -> str | None:
        """The mode that counts as training: the complete step if the grid has it; None without training."""
        present = set(self.runs["mode"])
        return next((mode for mode in FULLEST_FIRST if mode != FORWARD and mode in present), None)

    @property
    def has_kernels(self) -> bool:
        """Whether any table of kernels has a row: even a complete capture may have no kernels."""
        return any(not self.tables[name].empty for name in _names_with_columns(self.tables, [KERNEL_TIME]))

    @property
    def steps(self) -> StepsInWords:
        timed, captured = (self.runs[name].replace(0, None) for name in ("steps_timed", "steps_captured"))
        return StepsInWords(interval(timed, count), interval(captured, count))

    def inference(self, name: str) -> pd.DataFrame:
        """The rows of a summary table that belong to the runs of the inference mode."""
        return self.mode(name, self.inference_mode)

    def mode(self, name: str, mode: str) -> pd.DataFrame:
        """The rows of a summary table that belong to the runs of this mode."""
        table = self.tables[name]
        return table[table["mode"] == mode]

    def label(self, kernel: str) -> str:
        """A kernel in Markdown: its name as code if that is plain and short, else its short name in bold."""
        short = self.short_names[kernel]
        return f"`{kernel}`" if short == kernel and PLAIN_NAME.fullmatch(kernel) else f"**{escaped(short)}**"


class TablesOfRuns(Mapping[str, pd.DataFrame]):
    """The rows of these runs in each table; a table is read or made on first use."""

    def __init__(self, run_names: list[str], tables: Mapping[str, pd.DataFrame]) -> None:
        self._run_names, self._tables = run_names, tables
        self._selected: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._selected:
            table = self._tables[name]
            self._selected[name] = table[table["run"].isin(self._run_names)]
        return self._selected[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def measured_on(
    machine: Machine, run_names: list[str], runs: pd.DataFrame, tables: Mapping[str, pd.DataFrame]
) -> Measured:
    """The results of these runs, all of one machine."""
    machine_tables, machine_runs = TablesOfRuns(run_names, tables), runs[runs["run"].isin(run_names)]
    return Measured(machine, machine_runs, machine_tables, names_of_summary_kernels(machine_tables))


def names_of_summary_kernels(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """The short names of the kernels in the summary tables, which are those that documents of a machine name. Names are
    given first to the kernel with the most time in all these tables together. Figures and page name further kernels."""
    columns = ["kernel", KERNEL_TIME]
    kernel_times = [tables[name][columns] for name in _names_with_columns(tables, columns)]
    if not kernel_times:
        return {}
    times = pd.concat(kernel_times).groupby("kernel", sort=False, observed=True).sum().reset_index()
    times = times.sort_values([KERNEL_TIME, "kernel"], ascending=[False, True])
    return short_names(times["kernel"])


def _names_with_columns(tables: Mapping[str, pd.DataFrame], columns: list[str]) -> list[str]:
    """The names of the summary tables that are declared with these columns; this reads and makes no table."""
    summaries = [name for name in tables if name in SUMMARY_NAMES]
    return [name for name in summaries if {*columns} <= {*declared_tables()[name].all_names}]
