"""Whether a measured program would load the same code again, by names and contents; nothing is imported."""

import marshal
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cs336_model.program.code_digest import bytes_digest
from cs336_model.program.loading import CHECKOUT, ELSEWHERE, PROJECT
from cs336_model.program.module_search import (
    Location,
    ModuleSearch,
    importable_names,
    is_installed,
    is_stdlib,
    path_below_import_folder,
)
from profile_grid.freshness.imports import digest_of_loaded
from profile_grid.typed_json import Mismatch, parse_as

CHANGED = "a file that the measured program ran has changed"
GONE = "a file that the measured program ran is gone"
ANOTHER = "the measured program would run another file now"
FOUND_NOW = "a module that the measured program did not find is here now"
HIDDEN = "a module that the measured program ran is hidden by another of its name now"
DAMAGED = "the result does not say what the measured program loaded"


@dataclass(frozen=True)
class LoadedFile:
    """A file that was loaded. The path of a module found by its name begins at the folder from which it is imported."""

    root: str  # what the path is relative to
    path: str
    digest: str


@dataclass(frozen=True)
class LoadedCode:
    """The code that a measured program loaded: see cs336_model/program/loading.py."""

    modules: dict[str, LoadedFile]  # by name
    namespaces: list[str]  # packages without a file
    by_path: list[LoadedFile]  # not found by a name
    not_found: list[str]  # modules that it looked for in vain
    others: list[str]  # top-level names of all other modules, which a new file may hide


_reasons: dict[tuple, str | None] = {}


def changed_code(record: Mapping[str, Any], same_machine: bool) -> str | None:
    """Why the program would load other code now, or that the record is damaged; None if it would load the same, or if
    this machine cannot know.

    Installed files and extension modules are compared only on the `same_machine`, since they differ between machines.
    Thousands of results have the same record, so each record is compared once.
    """
    key = (marshal.dumps(record, 2), same_machine, *search_folders())  # version 2: equal records are equal bytes
    if key not in _reasons:
        try:
            _reasons[key] = next(_all_reasons(parse_as(LoadedCode, record), same_machine), None)
        except Mismatch:
            _reasons[key] = DAMAGED
    return _reasons[key]


def _all_reasons(code: LoadedCode, same_machine: bool) -> Iterator[str]:
    reasons = [_module_reason(name, file, same_machine) for name, file in code.modules.items()]
    reasons += [_namespace_reason(name) for name in code.namespaces]
    reasons += [_path_reason(file) for file in code.by_path]
    reasons += [f"{FOUND_NOW}: {name}" for name in code.not_found if _is_found(name, same_machine)]
    reasons += [f"{HIDDEN}: {name}" for name in code.others if name in _names_that_hide(search_folders())]
    return (reason for reason in reasons if reason)


def _module_reason(name: str, file: LoadedFile, same_machine: bool) -> str | None:
    if not same_machine and not file.path.endswith(".py"):
        return None
    location = current_search().find(name)
    if location is None or location.first_path is None:
        is_gone = file.root != ELSEWHERE or (same_machine and _package_is_here(name))
        return f"{GONE}: {file.path}" if is_gone else None
    if not same_machine and file.root == ELSEWHERE and is_installed(location.first_path):
        return None
    path = _path_of(name, location)
    if path != file.path:
        return f"{ANOTHER}: {path} instead of {file.path}"
    return None if _has_digest(location.file, file.digest) else f"{CHANGED}: {file.path}"


def _path_of(name: str, location: Location) -> str:
    """The path of a module, or of a package without a file, below the folder it is imported from."""
    if location.file is None:
        return name.replace(".", "/")
    return path_below_import_folder(name, os.path.basename(location.file))


def _package_is_here(name: str) -> bool:
    """Whether the package of a missing module is present, so that a file of it was deleted."""
    top, dot, _ = name.partition(".")
    package = current_search().find(top) if dot else None
    return package is not None and package.file is not None


def _namespace_reason(name: str) -> str | None:
    location = current_search().find(name)
    return f"{ANOTHER}: {_path_of(name, location)}" if location and location.file else None


def _path_reason(file: LoadedFile) -> str | None:
    path = Path(CHECKOUT if file.root == PROJECT else Path.cwd(), file.path)
    if not path.is_file():
        return f"{GONE}: {file.path}"
    return None if _has_digest(str(path), file.digest) else f"{CHANGED}: {file.path}"


def _is_found(name: str, same_machine: bool) -> bool:
    """Whether a module is here now; on another machine, those installed or part of Python do not count."""
    location = current_search().find(name)
    if location is None:
        return False
    path = location.first_path
    return same_machine or not (path is None or is_installed(path) or is_stdlib(path))


def _has_digest(path: str, digest: str) -> bool:
    """Whether a file is the one that was loaded, by its bytes or, for Python, by its code."""
    return digest == _bytes_digest(path) or (path.endswith(".py") and digest == _code_digest(path))


@cache
def _bytes_digest(path: str) -> str:
    return bytes_digest(Path(path).read_bytes())


@cache
def _code_digest(path: str) -> str:
    return digest_of_loaded(Path(path).read_bytes())


def search_folders() -> tuple[str, ...]:
    """The user's folders in which a measured program that is started here searches first."""
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return (os.getcwd(), *(os.path.abspath(folder) for folder in python_path if folder))


def current_search() -> ModuleSearch:
    """Where a measured program that is started here would find its modules."""
    return _search(search_folders())


@cache
def _search(folders: tuple[str, ...]) -> ModuleSearch:
    return ModuleSearch([*folders, *_folders_of_every_program()], sys.meta_path)


@cache
def _names_that_hide(folders: tuple[str, ...]) -> frozenset[str]:
    users_folders = [folder for folder in folders if not is_installed(folder) and not is_stdlib(folder)]
    return frozenset().union(*map(importable_names, users_folders))


def _folders_of_every_program() -> list[str]:
    """The part of sys.path that every program of this interpreter has; programs such as Snakemake add to theirs."""
    usual = [folder for folder in sys.path if is_installed(folder) or is_stdlib(folder) or folder.endswith(".zip")]
    named = {named for folder in usual if is_installed(folder) for named in _folders_in_pth_files(folder)}
    return [folder for folder in sys.path if folder in usual or folder in named]


def _folders_in_pth_files(folder: str) -> Iterator[str]:
    for file in Path(folder).glob("*.pth"):
        for line in file.read_text(errors="replace").splitlines():
            yield os.path.abspath(os.path.join(folder, line.strip()))
