"""Where Python would find a module, without importing it. Uses only the standard library."""

import os
import pkgutil
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder, all_suffixes
from pathlib import PurePath
from typing import Any

SUFFIXES = all_suffixes()  # of the files of modules
PACKAGE_FOLDERS = {"site-packages", "dist-packages"}
INTERPRETER_FINDERS = (BuiltinImporter, FrozenImporter)
STANDARD_LIBRARY = {os.path.dirname(os.__file__), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}


@dataclass(frozen=True)
class Location:
    """Where a module is found: its file, and the folders of its modules if it is a package."""

    file: str | None  # None for a namespace package and for a part of the interpreter
    folders: tuple[str, ...] | None = None  # None unless it is a package

    @property
    def first_path(self) -> str | None:
        """The file, or the first folder of a namespace package; None for a part of the interpreter."""
        return self.file or next(iter(self.folders or ()), None)


class ModuleSearch:
    """Finds what `import` would find in a program that begins now: first modules of the interpreter itself, then
    modules in `folders`, then those that `finders` find."""

    def __init__(self, folders: Sequence[str], finders: Iterable[Any] = ()) -> None:
        self.folders = list(folders)
        usual_finders = (*INTERPRETER_FINDERS, PathFinder)  # `_find_top` calls them first, in any case
        self.finders = [finder for finder in finders if finder not in usual_finders and hasattr(finder, "find_spec")]
        self._locations: dict[str, Location | None] = {}

    def find(self, name: str) -> Location | None:
        """The location of the module of this full name; None if there is none. Each name is looked up once."""
        if name not in self._locations:
            self._locations[name] = self._find(name)
        return self._locations[name]

    def is_built_in(self, name: str) -> bool:
        """Whether the module is a part of the interpreter, which no file hides."""
        location = self.find(name)
        return location is not None and location.first_path is None

    def _find(self, name: str) -> Location | None:
        parent, _, _ = name.rpartition(".")
        if not parent:
            return self._find_top(name)
        package = self.find(parent)
        if package is None or package.folders is None:
            return None
        return _in_package(name, package.folders)

    def _find_top(self, name: str) -> Location | None:
        if any(finder.find_spec(name) for finder in INTERPRETER_FINDERS):
            return Location(file=None)
        specs = (PathFinder.find_spec(name, self.folders), *(finder.find_spec(name, None) for finder in self.finders))
        return next((_location(spec) for spec in specs if spec is not None), None)


def _in_package(name: str, folders: Iterable[str]) -> Location | None:
    """The location of a module in the folders of its package, as PathFinder finds it. PathFinder is not asked, because
    for a namespace package it raises KeyError unless the package around it is already imported."""
    namespace_folders: list[str] = []
    for finder in filter(None, map(pkgutil.get_importer, folders)):
        spec = finder.find_spec(name)
        if spec and spec.loader:
            return _location(spec)
        if spec:
            namespace_folders += spec.submodule_search_locations or ()
    return Location(file=None, folders=tuple(namespace_folders)) if namespace_folders else None


def _location(spec: Any) -> Location:
    file = os.path.abspath(spec.origin) if spec.has_location else None
    folders = spec.submodule_search_locations
    return Location(file, None if folders is None else tuple(folders))


def packages_of(targets: Iterable[str]) -> set[str]:
    """The top-level package of each target: "package" for "package.module:name"."""
    return {target.partition(":")[0].partition(".")[0] for target in targets}


def path_below_import_folder(module: str, file_name: str) -> str:
    """The path of a module's file below the folder from which it is imported: "package/module.py"."""
    parents = module.split(".") if file_name.startswith("__init__.") else module.split(".")[:-1]
    return "/".join([*parents, file_name])


def is_installed(path: str | PurePath) -> bool:
    """Whether a file or folder is in a folder of installed packages."""
    return not PACKAGE_FOLDERS.isdisjoint(PurePath(path).parts)


def is_stdlib(path: str) -> bool:
    """Whether a file or folder belongs to the standard library."""
    return not is_installed(path) and any(f"{path}/".startswith(f"{folder}/") for folder in STANDARD_LIBRARY)


def importable_names(folder: str) -> set[str]:
    """The names of modules and packages in a folder, which hide those of folders later in the search. Namespace
    packages hide none, so they are left out."""
    try:
        entries = list(os.scandir(folder or os.curdir))
    except OSError:  # PYTHONPATH may name missing folders
        return set()
    files = [(entry.name, suffix) for entry in entries for suffix in SUFFIXES if entry.name.endswith(suffix)]
    modules = {file_name.removesuffix(suffix) for file_name, suffix in files}
    packages = {entry.name for entry in entries if "." not in entry.name and _is_package(entry.path)}
    return {name for name in modules if "." not in name} | packages


def _is_package(folder: str) -> bool:
    return any(os.path.isfile(f"{folder}/__init__{suffix}") for suffix in SUFFIXES)
