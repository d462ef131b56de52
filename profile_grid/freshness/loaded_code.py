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
    """A file that was loaded."""

    root: str  # PROJECT (this checkout), WORKING (the working folder), or ELSEWHERE
    path: str  # of a module found by its name, below the folder from which it is imported; of others, below the root
    digest: str


@dataclass(frozen=True)
class LoadedCode:
    """The code that a measured program loaded: see cs336_model/program/loading.py."""

    modules: dict[str, LoadedFile]  # by name
    namespaces: list[str]  # packages without a file
    by_path: list[LoadedFile]  # not found by a name
    not_found: list[str]  # modules that it looked for in vain
    others: list[str]  # top-level names of all other modules, which a new file of the same name may hide


_change_by_record: dict[tuple, str | None] = {}


def changed_code(record: Mapping[str, Any], is_same_machine: bool) -> str | None:
    """Why the program would load other code now, or that the record is damaged; None if it would load the same, or if
    this machine cannot know.

    Installed files and extension modules are compared only on the same machine, since they differ between machines.
    Thousands of results have the same record, so each record is compared once.
    """
    key = (marshal.dumps(record, 2), is_same_machine, *search_folders())  # version 2: equal records are equal bytes
    if key not in _change_by_record:
        try:
            _change_by_record[key] = next(_changes(parse_as(LoadedCode, record), is_same_machine), None)
        except Mismatch:
            _change_by_record[key] = DAMAGED
    return _change_by_record[key]


def _changes(code: LoadedCode, is_same_machine: bool) -> Iterator[str]:
    changes = [_module_change(name, file, is_same_machine) for name, file in code.modules.items()]
    changes += [_namespace_change(name) for name in code.namespaces]
    changes += [_path_change(file) for file in code.by_path]
    changes += [f"{FOUND_NOW}: {name}" for name in code.not_found if _is_found(name, is_same_machine)]
    changes += [f"{HIDDEN}: {name}" for name in code.others if name in _names_that_hide(search_folders())]
    return filter(None, changes)


def _module_change(name: str, file: LoadedFile, is_same_machine: bool) -> str | None:
    """What has changed about a module that was found by its name; None also if another machine cannot tell."""
    if not is_same_machine and not file.path.endswith(".py"):
        return None
    location = current_search().find(name)
    if location is None or location.first_path is None:
        # a package that is not installed here at all does not count as changed
        is_gone = file.root != ELSEWHERE or (is_same_machine and _package_is_here(name))
        return f"{GONE}: {file.path}" if is_gone else None
    if not is_same_machine and file.root == ELSEWHERE and is_installed(location.first_path):
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


def _namespace_change(name: str) -> str | None:
    location = current_search().find(name)
    return f"{ANOTHER}: {_path_of(name, location)}" if location and location.file else None


def _path_change(file: LoadedFile) -> str | None:
    path = Path(CHECKOUT if file.root == PROJECT else Path.cwd(), file.path)
    if not path.is_file():
        return f"{GONE}: {file.path}"
    return None if _has_digest(str(path), file.digest) else f"{CHANGED}: {file.path}"


def _is_found(name: str, is_same_machine: bool) -> bool:
    """Whether a module is here now. On another machine, an installed module or one of Python itself does not count."""
    location = current_search().find(name)
    if location is None:
        return False
    path = location.first_path
    return is_same_machine or not (path is None or is_installed(path) or is_stdlib(path))


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
    """The folders that a measured program that is started here searches first: the working folder and PYTHONPATH."""
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
    """The top-level names that can be imported from the user's own folders among these, which are searched first."""
    users_folders = [folder for folder in folders if not is_installed(folder) and not is_stdlib(folder)]
    return frozenset().union(*map(importable_names, users_folders))


def _folders_of_every_program() -> list[str]:
    """The part of sys.path that every program of this interpreter has; programs such as Snakemake add to theirs."""
    usual = [folder for folder in sys.path if is_installed(folder) or is_stdlib(folder) or folder.endswith(".zip")]
    in_pth_files = {folder for site in filter(is_installed, usual) for folder in _folders_in_pth_files(site)}
    return [folder for folder in sys.path if folder in usual or folder in in_pth_files]


def _folders_in_pth_files(folder: str) -> Iterator[str]:
    """The folders that the .pth files in a folder of installed packages add to sys.path."""
    for file in Path(folder).glob("*.pth"):
        for line in file.read_text(errors="replace").splitlines():
            yield os.path.abspath(os.path.join(folder, line.strip()))
