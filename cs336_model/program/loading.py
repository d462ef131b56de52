"""Records the files that a measured process loads, at the moment when it loads them, so that digests are of the bytes
that ran. Files that are already loaded when recording begins, or when a package is added, are read then.

`python -m cs336_model.program` calls `start_code_recorder` before it imports anything else. A file is recorded unless
it belongs to the standard library, to PyTorch or Triton, to an installed package, or to the machine (sitecustomize and
usercustomize). Of installed packages, the measured ones are recorded after all (`record_packages`). The record says how
to find each file again: by the name of its module, or else by its path (profile_grid/freshness/loaded_code.py). Uses
only the standard library.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
from itertools import accumulate
from typing import Any

from cs336_model.program.code_digest import bytes_digest, code_digest
from cs336_model.program.module_search import (
    ModuleSearch,
    importable_names,
    is_installed,
    is_stdlib,
    packages_of,
    path_below_import_folder,
)

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKING, PROJECT, ELSEWHERE = ".", "project", "elsewhere"  # roots: which of the two folders a file is in, or neither
CHANGED = "changed while it was measured; run again"
# Under nsys, the working folder has only links (profile_grid/stages/capture/nsys_sandbox.py): to the entries of the
# real working folder, to that folder itself, and to other folders, whose files are not below the working folder.
WORKING_LINK = ".working-folder"
OTHER_LINK_PREFIX = ".host-"
PACKAGES_BY_VERSION = {"torch", "torchgen", "functorch", "triton"}  # identified by version, also if built from source
PROGRAM_NAMES = {"__main__", "__mp_main__"}  # of the program itself in sys.modules
HOST_HOOKS = {"sitecustomize", "usercustomize"}  # Python's own modules for the administrator and the user


@dataclass
class RecordedFile:
    """A file that was loaded as a module."""

    module: str
    path: str  # absolute
    content: bytes  # when it was first loaded
    is_importable: bool  # whether `import` of the module loads this file, in a program that begins as this one did
    has_changed: bool = False  # whether it was loaded again with another content

    def entry(self, root: str, path: str) -> dict[str, str]:
        """The file's entry in the record; `path` is below the root, or below the folder from which it is imported.
        Raises SystemExit if its code is no longer the one that ran."""
        digest = file_digest(self.path, self.content)
        if self.has_changed or not self._is_unchanged_on_disk(digest):
            raise SystemExit(f"{path}: {CHANGED}")
        return {"root": root, "path": path, "digest": digest}

    def _is_unchanged_on_disk(self, digest: str) -> bool:
        try:
            with open(self.path, "rb") as file:
                content = file.read()
        except OSError:
            return False
        return content == self.content or file_digest(self.path, content) == digest


def file_digest(path: str, content: bytes) -> str:
    """The digest of a loaded file: of its code without comments. For extension modules it is of every byte, and also
    for installed files, which may have a million lines, too many to parse."""
    if is_installed(path) or path.endswith(tuple(EXTENSION_SUFFIXES)):
        return bytes_digest(content)
    return code_digest(content)


class CodeRecorder:
    """The recorded files that this process has loaded up to now."""

    def __init__(self) -> None:
        self.search = ModuleSearch(list(sys.path), list(sys.meta_path))
        self.root_folders = _root_folders()
        self.installed_packages: set[str] = set()  # those of which files are recorded
        self.files: dict[tuple[str, str], RecordedFile] = {}  # by module and path
        self.paths: set[str] = set()  # of these files
        self.missing_modules: set[str] = set()  # those that the files tried to import
        # The names of modules in the user's folders, at the start. If a module of such a name comes from elsewhere all
        # the same, the user's file does not hide it later, either.
        users_folders = (path for path in sys.path if not is_installed(path) and not is_stdlib(path))
        self.users_names = set().union(*map(importable_names, users_folders))
        self._add_loaded()

    def is_recorded(self, module: str, path: str) -> bool:
        """Whether this file is recorded: a change of it may change the measurement."""
        package = module.partition(".")[0]
        if is_installed(path):
            return package in self.installed_packages
        return package not in PACKAGES_BY_VERSION | HOST_HOOKS and not is_stdlib(path)

    def add(self, module: str, path: str, content: bytes) -> None:
        """Records a file that is being loaded."""
        path = os.path.abspath(path)
        location = self.search.find(module)
        is_importable = location is not None and location.file == path
        file = self.files.setdefault((module, path), RecordedFile(module, path, content, is_importable))
        file.has_changed |= file.content != content
        self.paths.add(path)

    def add_packages(self, packages: set[str]) -> None:
        """From now on, also records the files of these installed packages, including those that are already loaded."""
        self.installed_packages |= packages - PACKAGES_BY_VERSION
        self._add_loaded()

    def _add_loaded(self) -> None:
        for loaded_name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            name, path = getattr(spec, "name", loaded_name), getattr(spec, "origin", None)
            is_new = path and os.path.abspath(path) not in self.paths and os.path.isfile(path)
            if is_new and self.is_recorded(name, path):
                with open(path, "rb") as file:
                    self.add(name, path, file.read())

    def add_missing(self, module: str, importer: str) -> None:
        """Records a module that no finder has, if the file `importer` that imports it is recorded."""
        if os.path.abspath(importer) in self.paths and self.search.find(module) is None:
            self.missing_modules.add(module)

    def record(self) -> dict[str, Any]:
        """The record for the result, without files that cannot be found again: those that `import` would not find, and
        that are ELSEWHERE. Raises SystemExit if the code of a file in it is no longer the one that ran."""
        modules, by_path = {}, {}
        for file in self.files.values():
            root, path_below_root = self._root_and_path(file.path)
            if file.is_importable:
                path = path_below_import_folder(file.module, os.path.basename(file.path))
                modules[file.module] = file.entry(root, path)
            elif root != ELSEWHERE:
                by_path[root, path_below_root] = file.entry(root, path_below_root)
        return {
            "modules": dict(sorted(modules.items())),
            "namespaces": sorted({package for module in modules for package in self._namespaces_around(module)}),
            "by_path": [by_path[key] for key in sorted(by_path)],
            "not_found": sorted(name for name in self.missing_modules - sys.modules.keys() if _is_name(name)),
            "others": self._hideable_modules(),
        }

    def _root_and_path(self, path: str) -> tuple[str, str]:
        """(root, path below the root's folder) of a file; (ELSEWHERE, "") if it is installed, or below no such folder.
        Links in the path are resolved only if the path as it is written is below none of the folders."""
        if not is_installed(path):
            for absolute_path in (path, os.path.realpath(path)):
                for root, folder in self.root_folders:
                    path_below = absolute_path.removeprefix(f"{folder}{os.sep}")
                    if path_below != absolute_path and not path_below.startswith(OTHER_LINK_PREFIX):
                        return root, path_below
        return ELSEWHERE, ""

    def _namespaces_around(self, module: str) -> list[str]:
        """The packages around an importable module that are namespace packages, which have no file."""
        packages = accumulate(module.split(".")[:-1], "{}.{}".format)  # a, a.b, a.b.c
        return [package for package in packages if self.search.find(package).file is None]

    def _hideable_modules(self) -> list[str]:
        """The top-level names of loaded modules that are not recorded, and that a new file of the user, such as one in
        the working folder, would hide."""
        recorded = {module.partition(".")[0] for module, _ in self.files}
        names = {name.partition(".")[0] for name in list(sys.modules)} - recorded - self.users_names - PROGRAM_NAMES
        return sorted(name for name in names if _is_name(name) and not self.search.is_built_in(name))


def _root_folders() -> list[tuple[str, str]]:
    """(root, folder) for the project's and the working folder, each with and without links; the longest paths first."""
    working_folders = [os.getcwd(), WORKING_LINK] if os.path.islink(WORKING_LINK) else [os.getcwd()]
    folders = [(PROJECT, CHECKOUT), *((WORKING, folder) for folder in working_folders)]
    folders += [(root, os.path.realpath(folder)) for root, folder in folders]
    return sorted(folders, key=lambda root_folder: len(root_folder[1]), reverse=True)


def _is_name(name: str) -> bool:
    """Whether this can be the name of a module. A program may try to import any text, such as a private path, which
    must not be recorded."""
    return all(part.isidentifier() for part in name.split("."))


class _MissingModuleFinder:
    """The last finder: it is called for modules that no other finder has, and records them."""

    def __init__(self, recorder: CodeRecorder) -> None:
        self._recorder = recorder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        frame = sys._getframe(1)
        while frame is not None and _is_of_importlib(frame.f_code.co_filename):
            frame = frame.f_back  # up to the code that imports
        if frame is not None:
            self._recorder.add_missing(name, frame.f_code.co_filename)


def _is_of_importlib(file: str) -> bool:
    return file.startswith("<frozen importlib") or os.path.basename(os.path.dirname(file)) == "importlib"


_recorder: CodeRecorder | None = None


def start_code_recorder() -> None:
    """Starts to record what this process loads; nothing if it has started."""
    global _recorder
    if _recorder is not None:
        return
    _recorder = CodeRecorder()
    for loader in (SourceFileLoader, SourcelessFileLoader):
        loader.get_code = _recording_get_code(_recorder, loader.get_code)
    ExtensionFileLoader.create_module = _recording_create_module(_recorder, ExtensionFileLoader.create_module)
    sys.meta_path.append(_MissingModuleFinder(_recorder))


def record_packages(targets: Iterable[str]) -> None:
    """Records the files of the packages of `targets`, even if these are installed; `targets` are what is measured, as
    "package.module:name". Does nothing before start_code_recorder."""
    if _recorder is not None:
        _recorder.add_packages(packages_of(targets))


def loaded_code() -> dict[str, Any] | None:
    """The record of what this process has loaded; None without start_code_recorder. Raises SystemExit if a recorded
    file is no longer the one that ran."""
    return None if _recorder is None else _recorder.record()


def _recording_get_code(recorder: CodeRecorder, original):
    """A loader's get_code that also records the bytes of the file. A source is compiled from these bytes, and never
    loaded from an older .pyc."""

    def get_code(loader, fullname):
        path = loader.get_filename(fullname)
        if not recorder.is_recorded(fullname, path):
            return original(loader, fullname)
        content = loader.get_data(path)
        recorder.add(fullname, path, content)
        if isinstance(loader, SourceFileLoader):
            return loader.source_to_code(content, path)
        return original(loader, fullname)

    return get_code


def _recording_create_module(recorder: CodeRecorder, original):
    """A loader's create_module that records the extension module."""

    def create_module(loader, spec):
        if recorder.is_recorded(spec.name, spec.origin):
            recorder.add(spec.name, spec.origin, loader.get_data(spec.origin))
        return original(loader, spec)

    return create_module
