"""The runs of a plan with the results of all their stages, as the merge reads them.

A run whose result was made from another specification than the plan's is an error, never a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profile_grid.errors import OutsideError
from profile_grid.measuring.results import COMPLETE, INCOMPLETE, StageResult, Status, read_result, read_status
from profile_grid.study.dimensions import LEADING, MACHINE_DIMENSIONS
from profile_grid.study.stages import STAGES, Stage


class StaleRun(OutsideError):
    """A run's files were made from another specification than config.yaml now holds."""


@dataclass(frozen=True)
class MeasuredRun:
    """One run: what the plan says of it, and by stage its result and its status."""

    entry: Mapping[str, Any]
    results: Mapping[str, StageResult]
    statuses: Mapping[str, Status]

    @property
    def name(self) -> str:
        return self.entry["run"]

    @property
    def leading(self) -> dict[str, Any]:
        """The columns with which every table begins: the run and its dimensions."""
        return {key: self.entry[key] for key in LEADING}

    def complete(self, stage: str) -> bool:
        """Whether the figures of this stage can be used."""
        return self.statuses[stage].status == COMPLETE


def read_runs(plan: list[dict], folder: Path) -> list[MeasuredRun]:
    """Every run of the plan, in its order; `folder` holds a folder for each. Raises StaleRun or BadResult."""
    return [_read_run(entry, folder / entry["run"]) for entry in plan]


def _read_run(entry: dict, folder: Path) -> MeasuredRun:
    results = {stage.name: read_result(folder / stage.result) for stage in STAGES}
    for name, result in results.items():
        if result.specification != entry["specifications"][name]:
            path = folder / f"{name}.json"
            raise StaleRun(
                f"{path} was measured with other settings than config.yaml now holds;"
                f" run it again: snakemake --cores 1 all --forcerun {path}"
            )
    return MeasuredRun(entry, results, _statuses(results, folder))


def _statuses(results: Mapping[str, StageResult], folder: Path) -> dict[str, Status]:
    statuses = {stage.name: _status(stage, results[stage.name], folder) for stage in STAGES}
    first, *others = STAGES
    for stage in others:
        reason = _machines_differ(first, stage, results, folder)
        if statuses[stage.name].status == COMPLETE and reason:
            statuses[stage.name] = Status(INCOMPLETE, reason, [])
    return statuses


def _status(stage: Stage, result: StageResult, folder: Path) -> Status:
    """What the tables of the run say of it, where the stage has any; else how its process ended."""
    if stage.tables_of_a_run is None:
        return Status(result.status, result.reason, [])
    return read_status(folder / stage.tables_of_a_run.status_file)


def _machines_differ(first: Stage, other: Stage, results: Mapping[str, StageResult], folder: Path) -> str | None:
    """Why the figures of two stages may not stand in one row: they are of two machines; None where of one."""
    if results[first.name].program is None or results[other.name].program is None:
        return None
    here, there = (vars(results[stage.name].program.machine) for stage in (first, other))
    for dimension in MACHINE_DIMENSIONS:
        key = dimension.key
        if key in here and here[key] != there[key]:
            return (
                f"{first.name} ran with {key} {here[key]}, {other.name} with {there[key]}; measure both on one machine:"
                f" snakemake --cores 1 all --forcerun {folder / first.result} {folder / other.result}"
            )
    return None
