"""The machines that results come from: figures of two machines never stand in one table."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from profile_grid.quantities import known

IDENTITY = ("device", "device_name", "driver", "cuda", "torch", "backend", "nsys")
MEASURED_FILES = ("timing.json", "capture.json")


@dataclass(frozen=True)
class Machine:
    """What a set of runs was measured with; None where no run says."""

    device: str | None = None
    device_name: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    backend: str | None = None
    nsys: str | None = None

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def profiler(self) -> str:
        """The profiler's name, with its version where it has one of its own."""
        if self.backend == "torch":
            return "PyTorch's own profiler"
        if self.backend == "nsys":
            return "Nsight Systems" + (f" {self.nsys}" if self.nsys else "")
        return "no profiler"

    @property
    def title(self) -> str:
        """One line that tells this machine from another."""
        versions = (("driver", self.driver), ("CUDA", self.cuda), ("PyTorch", self.torch))
        parts = [self.device_name or "unknown device", *(f"{name} {value}" for name, value in versions if value)]
        return ", ".join([*parts, self.profiler])


def by_machine(runs: pd.DataFrame) -> list[tuple[Machine, list[str]]]:
    """The machines and the names of their runs, in the order of the table; a run that failed before it could say
    where belongs to the first machine that agrees with what it does say."""
    groups: dict[Machine, list[str]] = {}
    identities = [_identity(row) for row in runs.to_dict("records")]
    for machine in sorted(set(identities), key=lambda one: (-_facts(one), identities.index(one))):
        _home(machine, groups)
    for name, machine in zip(runs["run"], identities, strict=True):
        groups[_home(machine, groups)].append(name)
    order = {name: position for position, name in enumerate(runs["run"])}
    return sorted(((machine, names) for machine, names in groups.items() if names), key=lambda pair: order[pair[1][0]])


def command_to_measure_again(runs: list[str]) -> str:
    """The command that measures these runs again on the machine it is typed on, and nothing else."""
    files = [f"results/runs/{run}/{name}" for run in runs for name in MEASURED_FILES]
    return "snakemake --cores 1 all --forcerun \\\n    " + " \\\n    ".join(files)


def _identity(row: dict) -> Machine:
    return Machine(**{name: str(row[name]) if known(row.get(name)) else None for name in IDENTITY})


def _facts(machine: Machine) -> int:
    return sum(getattr(machine, name) is not None for name in IDENTITY)


def _home(machine: Machine, groups: dict[Machine, list[str]]) -> Machine:
    for other in groups:
        if all(getattr(machine, name) in (None, getattr(other, name)) for name in IDENTITY):
            return other
    groups[machine] = []
    return machine
