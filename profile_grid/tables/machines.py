"""The machines of the results; the results of two machines are never in one table."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from profile_grid.quantities import known
from profile_grid.study.dimensions import MACHINE_DIMENSIONS, MACHINE_KEYS
from profile_grid.study.stages import NOT_ASKED, STAGES

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
