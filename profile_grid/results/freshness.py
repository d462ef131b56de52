"""Whether a result on disk is what would be measured now, by what it says of itself."""

import os
from collections.abc import Mapping
from functools import cache

from profile_grid.freshness.environment import changed_environment
from profile_grid.freshness.loaded import changed_code
from profile_grid.freshness.versions import changed_version, other_device, same_machine
from profile_grid.results.results import Origin, ProgramResult, Ran, StageResult

OTHER_SETTINGS = "the settings have changed"


def stale_reason(origin: Origin | StageResult, specification: Mapping, sources: str) -> str | None:
    """Why a result is not what would be measured now, with this specification by these sources; None where it is."""
    if difference := first_difference(origin.specification, specification):
        return f"{OTHER_SETTINGS}: {difference}"
    if origin.sources != sources:
        return "the program, or what measures it, has changed"
    return _would_run_otherwise(origin.program, origin, specification) if origin.program else None


def _would_run_otherwise(
    program: Ran | ProgramResult, origin: Origin | StageResult, specification: Mapping
) -> str | None:
    """Which device, code, version or variable of a measured program would be another now; what is not here is none."""
    machine, given = program.machine, origin.environment
    if device := other_device(specification["program"], machine, given):
        return device
    comparable = same_machine(machine, given)
    if code := changed_code(program.loaded, comparable):
        return code
    if not comparable:
        return None
    version = changed_version(machine, program.loaded_distributions, origin.facts, specification)
    return version or changed_environment(given, _variables(), specification["environment"])


@cache
def _variables() -> dict[str, str]:
    """The environment, read once: a plan compares it with thousands of results."""
    return dict(os.environ)


def first_difference(then: object, now: object, where: str = "") -> str | None:
    """The first value that differs, with both: "program.seed was 0 and is 1"; None where none does."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = [*then, *(key for key in now if key not in then)]
        below = (first_difference(then.get(key), now.get(key), f"{where}.{key}" if where else key) for key in keys)
        return next((difference for difference in below if difference), None)
    return None if then == now else f"{where} was {_shown(then)} and is {_shown(now)}"


def _shown(value: object) -> str:
    text = "not there" if value is None else repr(value)
    return text if len(text) <= 80 else text[:80] + " ..."
