"""The runs of a plan with the results of all their stages, as the merge reads them.

A stale result raises StaleRun; no number is taken from it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from profile_grid.errors import OutsideError
from profile_grid.freshness import loaded_code, versions
from profile_grid.freshness.environment import changed_environment
from profile_grid.results.capture_identity import quick_identity_difference
from profile_grid.results.results import (
    COMPLETE,
    INCOMPLETE,
    OUT_OF_MEMORY,
    Origin,
    ProgramOrigin,
    ProgramResult,
    StageResult,
    StageStatus,
    read_result,
    read_status,
)
from profile_grid.study.dimensions import LEADING, MACHINE_KEYS
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED, STAGE_BY_NAME, STAGES, TIMING

FURTHER_PROCESSES = "processes"  # the folder, next to that of the runs, of timings by all processes but the first

SETTINGS_CHANGED = "the settings have changed"


def stale_reason(origin: Origin | StageResult, specification: Mapping, sources_digest: str) -> str | None:
    """Why a result is not what would be measured now, with this specification by these sources; None if it is."""
    if difference := first_difference(origin.specification, specification):
        return f"{SETTINGS_CHANGED}: {difference}"
    if origin.sources != sources_digest:
        return "the program, or what measures it, has changed"
    return _program_change(origin.program, origin, specification) if origin.program else None


def _program_change(
    program: ProgramOrigin | ProgramResult, origin: Origin | StageResult, specification: Mapping
) -> str | None:
    """What has changed since the program was measured: its device, code, a version or an environment variable. None if
    nothing has. What this machine lacks does not count as changed."""
    machine, environment = program.machine, origin.environment
    if device := versions.changed_device(specification["program"], machine, environment):
        return device
    is_same_machine = versions.is_same_machine(machine, environment)
    if code := loaded_code.changed_code(program.loaded, is_same_machine):
        return code
    if not is_same_machine:
        return None
    version = versions.changed_version(machine, program.loaded_distributions, origin.facts, specification)
    return version or changed_environment(environment, _present_environment(), specification["environment"])


@cache
def _present_environment() -> dict[str, str]:
    """The environment, read once: a plan compares it with thousands of results."""
    return dict(os.environ)


def first_difference(then: object, now: object, path: str = "") -> str | None:
    """The first value that differs between two JSON values: "program.seed was 0 and is 1". None if all are equal.
    `path` is the place of both in the whole, such as "program"."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = dict.fromkeys((*then, *now))
        differences = (first_difference(then.get(key), now.get(key), f"{path}.{key}" if path else key) for key in keys)
        return next(filter(None, differences), None)
    return None if then == now else f"{path} was {_short_text(then)} and is {_short_text(now)}"


def _short_text(value: object) -> str:
    text = "not there" if value is None else repr(value)
    return text if len(text) <= 80 else text[:80] + " ..."


class StaleRun(OutsideError):
    """A file of a run is not what would be made now; the message is one line, with the command that makes it again."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"{path} is stale: {reason}; make it again: snakemake --cores 1 all --forcerun {path}")


@dataclass(frozen=True)
class MeasuredRun:
    """One run, with the results of the stages that were requested for it. Its methods take the name of a stage."""

    entry: Mapping[str, Any]  # its part of the plan
    results: Mapping[str, StageResult]  # by the name of the stage
    statuses: Mapping[str, StageStatus]  # by the name of the stage
    further_timings: Sequence[StageResult] = ()  # the complete timings by all processes but the first

    @property
    def name(self) -> str:
        return self.entry["run"]

    @property
    def leading(self) -> dict[str, Any]:
        """The values of the LEADING columns: the run and its dimensions."""
        return {key: self.entry[key] for key in LEADING}

    @property
    def timings(self) -> list[StageResult]:
        """The complete timings of all processes; none if the first is not complete."""
        return [self.results[TIMING.name], *self.further_timings] if self.is_complete(TIMING.name) else []

    def is_complete(self, stage: str) -> bool:
        """Whether the numbers of this stage can be used."""
        return self.status(stage) == COMPLETE

    def may_have_rows(self, stage: str) -> bool:
        """Whether the tables of this stage may have rows: also if memory ran out, which they then show."""
        return self.status(stage) in (COMPLETE, OUT_OF_MEMORY)

    def status(self, stage: str) -> str:
        """The status of this stage of the run; NOT_ASKED if it was not requested."""
        return self.statuses[stage].status if stage in self.statuses else NOT_ASKED


def read_runs(
    entries: list[dict], folder: Path, source_digests: Mapping[str, str], processes: int = 1
) -> list[MeasuredRun]:
    """Every run of the plan, in its order; `folder` has a folder for each run. If several processes time each run, the
    folder `processes` next to `folder` has the timings by all but the first of them.

    `source_digests` has, by stage, the digest of the code that measures it now. Raises StaleRun or BadResult."""
    round_folders = [folder.parent / FURTHER_PROCESSES / str(number) for number in range(2, processes + 1)]
    runs = []
    for entry in entries:
        name = entry["run"]
        results = _fresh_results(entry, folder / name, source_digests)
        run_folders = [round_folder / name for round_folder in round_folders] if TIMING.name in results else []
        timings = [_further_timing(entry, path / TIMING.result_file, source_digests) for path in run_folders]
        complete_timings = [timing for timing in timings if timing.status == COMPLETE]
        runs.append(MeasuredRun(entry, results, _statuses(results, folder / name), complete_timings))
    return runs


def _further_timing(entry: dict, path: Path, source_digests: Mapping[str, str]) -> StageResult:
    """The timing of a run by a further process, which measures no accuracy. Raises StaleRun or BadResult."""
    result = read_result(path)
    specification = entry["specifications"][TIMING.name] | {"accuracy": False}
    if reason := stale_reason(result, specification, source_digests[TIMING.name]):
        raise StaleRun(path, reason)
    return result


def _fresh_results(entry: dict, folder: Path, source_digests: Mapping[str, str]) -> dict[str, StageResult]:
    """The results of a run by the name of the stage. Raises StaleRun if one, or a file next to it, is not what would be
    made now, and BadResult if one cannot be read."""
    results = {}
    for name, specification in entry["specifications"].items():
        path = folder / STAGE_BY_NAME[name].result_file
        result = results[name] = read_result(path)
        if reason := stale_reason(result, specification, source_digests[name]):
            raise StaleRun(path, reason)
        for file in result.files:
            if reason := quick_identity_difference(result, folder / file):
                raise StaleRun(path, f"{reason}: it is not of this run")
    return results


def _statuses(results: Mapping[str, StageResult], folder: Path) -> dict[str, StageStatus]:
    """The status of each stage. A complete stage counts as incomplete if its machine is not that of the first stage."""
    statuses = {}
    for name, result in results.items():
        status_file = STAGE_BY_NAME[name].status_file  # of its tables of the run, if it makes any
        process_status = StageStatus(result.status, result.reason, warnings=[])
        statuses[name] = read_status(folder / status_file) if status_file else process_status
    first_stage, *other_stages = (stage for stage in STAGES if stage.name in results)
    for stage in other_stages:
        reason = _machine_difference(first_stage, stage, results, folder)
        if statuses[stage.name].status == COMPLETE and reason:
            statuses[stage.name] = replace(statuses[stage.name], status=INCOMPLETE, reason=reason, warnings=[])
    return statuses


def _machine_difference(first: Stage, other: Stage, results: Mapping[str, StageResult], folder: Path) -> str | None:
    """Why the numbers of two stages may not be in one row: two machines measured them. None if one did."""
    if results[first.name].program is None or results[other.name].program is None:
        return None
    facts, other_facts = (vars(results[stage.name].program.machine) for stage in (first, other))
    for key in MACHINE_KEYS:
        if key in facts and facts[key] != other_facts[key]:
            return (
                f"{first.name} ran with {key} {facts[key]}, {other.name} with {other_facts[key]}; measure both on one"
                " machine: snakemake --cores 1 all --forcerun"
                f" {folder / first.result_file} {folder / other.result_file}"
            )
    return None
