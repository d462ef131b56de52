"""Whether a result on disk is what would be measured now, whatever anybody remembers: from what it tells of itself."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path

from cs336_model.program.loaded_distributions import distribution_version
from cs336_model.program.loaded_files import digest_of_file
from profile_grid.measuring.results import Origin, ProgramResult, Ran, StageResult, Status
from profile_grid.study.stages import OWN_RULES

OTHER_SETTINGS = "the settings have changed"


def stale_reason(origin: Origin | StageResult, specification: Mapping, sources: str) -> str | None:
    """Why a result is not what would be measured now, with this specification by these sources; None where it is."""
    if difference := first_difference(origin.specification, specification):
        return f"{OTHER_SETTINGS}: {difference}"
    if origin.sources != sources:
        return "the program, or what measures it, has changed"
    return _changed_since_loaded(origin.program) if origin.program else None


def _changed_since_loaded(program: Ran | ProgramResult) -> str | None:
    """Which file that the measured program ran, or which package, is another now; what is not here is none."""
    for file, digest in program.loaded_files.items():
        if present_digest(file) not in (digest, None):
            return f"a file that the measured program ran has changed: {file}"
    for name, then in program.loaded_distributions.items():
        if (now := present_version(name)) not in (then, None):
            return f"a package that the measured program ran has changed: {name} was {then} and is {now}"
    return None


def stale_tables_reason(
    status: Status,
    origin: Origin | StageResult,
    sources: str,
    own_rules: str,
    read_too: Sequence[Origin | StageResult] = (),
) -> str | None:
    """Why the tables of a run are not what would be made now of a result and of others that are read too; None where
    they are."""
    made = status.made_from
    if made is None:
        return "the tables have no provenance record"
    if difference := first_difference(made.specification, origin.specification):
        return f"{OTHER_SETTINGS}: {difference}"
    if made.files != digests_of_files(origin, *read_too):
        return "the tables were made from other files than those of the result"
    if made.own_rules != own_rules:
        return f"{' or '.join(OWN_RULES)} has changed"
    return None if made.sources == sources else "what makes the tables of a run has changed"


def digests_of_files(*origins: Origin | StageResult) -> dict[str, str]:
    """The digests of the files beside these results, by their names."""
    return {name: identity.sha256 for origin in origins for name, identity in origin.files.items()}


def digest_of_rules(own_rules: dict[str, list[dict]]) -> str:
    """What changes with the configuration's own rules."""
    return hashlib.sha256(json.dumps(own_rules, sort_keys=True).encode()).hexdigest()[:16]


def first_difference(then: object, now: object, where: str = "") -> str | None:
    """The first value that differs, with both: "program.seed was 0 and is 1"; None where none does."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        keys = [*then, *(key for key in now if key not in then)]
        below = (first_difference(then.get(key), now.get(key), f"{where}.{key}" if where else key) for key in keys)
        return next((difference for difference in below if difference), None)
    return None if then == now else f"{where} was {_shown(then)} and is {_shown(now)}"


@cache
def present_digest(file: str) -> str | None:
    """The digest that a file of the measured program has now. None where its package cannot be found: what is not
    installed here is not what changed. "gone" where the package is here and the file is not."""
    folders = _import_folders(file.partition("/")[0].partition(".")[0])
    found = next((folder / file for folder in folders if (folder / file).is_file()), None)
    if found is not None:
        return digest_of_file(found)
    return "gone" if folders else None


present_version = cache(distribution_version)


@cache
def _import_folders(top: str) -> tuple[Path, ...]:
    """The folders below which Python would find a top-level package or module, which is not imported."""
    spec = next((spec for spec in _specs(top) if spec is not None), None)
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(Path(location).parent for location in spec.submodule_search_locations)
    return (Path(spec.origin).parent,) if spec.has_location else ()


def _specs(top: str) -> Iterator[ModuleSpec | None]:
    """What each of Python's finders would say in a program that is started here with -m."""
    named = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    yield PathFinder.find_spec(top, [str(Path.cwd()), *named, *sys.path])
    for finder in sys.meta_path:  # packages in development are often found by a finder of their own
        if finder not in (BuiltinImporter, FrozenImporter, PathFinder) and hasattr(finder, "find_spec"):
            yield finder.find_spec(top, None)


def _shown(value: object) -> str:
    text = "not there" if value is None else repr(value)
    return text if len(text) <= 80 else text[:80] + " ..."
