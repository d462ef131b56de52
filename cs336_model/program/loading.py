"""Records the files that a measured process loads, when it loads them: a digest is that of the bytes that ran. Files
that are already loaded when recording begins, or when a package is added, are read then.

`python -m cs336_model.program` calls `start_code_recorder` before it imports anything else. A file is recorded unless
it belongs to the standard library, to PyTorch or Triton, to an installed package, or to the machine (sitecustomize and
usercustomize); of installed packages, only the measured ones are recorded (`record_packages`). Uses only the standard
library.
"""

import os
import sys
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
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
WORKING, PROJECT, ELSEWHERE = ".", "project", "elsewhere"  # what the path of a file is relative to
CHANGED = "changed while it was measured; run again"
LINK_PREFIX = ".host-"  # of the links to other folders, in the folder where nsys runs
WORKING_LINK = ".working-folder"  # in the same folder, the link to the working folder
PACKAGES_BY_VERSION = {"torch", "torchgen", "functorch", "triton"}  # identified by version, also if built from source
PROGRAM_NAMES = {"__main__", "__mp_main__"}  # of the program itself in sys.modules
HOST_HOOKS = {"sitecustomize", "usercustomize"}  # Python's own modules for the administrator and the user


class CodeRecorder:
    """The recorded files that this process has loaded up to now."""

    def __init__(self) -> None:
        self.search = ModuleSearch(list(sys.path), list(sys.meta_path))
        self.packages: set[str] = set()  # installed ones that are recorded
        self.contents: dict[tuple[str, str], bytes] = {}  # of the recorded files, by module and path
        self.namespaces: dict[str, list[str]] = {}  # namespace packages around each module that is found by its name
        self.changed: set[str] = set()  # files that were loaded again with another content
        self.not_found: set[str] = set()
        self.files: set[str] = set()
        # Names in the user's folders at the start. A module that came from elsewhere although the user has a file of
        # that name is not hidden by that file later, either.
        users_folders = (path for path in sys.path if not is_installed(path) and not is_stdlib(path))
        self.users_names = set().union(*map(importable_names, users_folders))
        self.roots = _roots()
        self._add_loaded()

    def is_recorded(self, name: str, path: str) -> bool:
        """Whether this file is recorded: a change of it may change the measurement."""
        top = name.partition(".")[0]
        if is_installed(path):
            return top in self.packages
        return top not in PACKAGES_BY_VERSION | HOST_HOOKS and not is_stdlib(path)

    def add(self, name: str, path: str, content: bytes) -> None:
        """Records a file that is being loaded."""
        path = os.path.abspath(path)
        self.files.add(path)
        if self.contents.setdefault((name, path), content) != content:
            self.changed.add(path)
        location = self.search.find(name)
        if location and location.file == path:
            parents = name.split(".")[:-1]
            packages = [".".join(parents[: count + 1]) for count in range(len(parents))]
            self.namespaces[name] = [package for package in packages if self.search.find(package).file is None]

    def add_packages(self, packages: set[str]) -> None:
        """Makes the files of installed packages recorded, including those that are already loaded."""
        self.packages |= packages - PACKAGES_BY_VERSION
        self._add_loaded()

    def _add_loaded(self) -> None:
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            name, path = getattr(spec, "name", name), getattr(spec, "origin", None)
            is_new = path and os.path.abspath(path) not in self.files and os.path.isfile(path)
            if is_new and self.is_recorded(name, path):
                with open(path, "rb") as file:
                    self.add(name, path, file.read())

    def add_not_found(self, name: str, importer: str) -> None:
        """Records a module that no finder has, if the file `importer` that imports it is recorded."""
        if os.path.abspath(importer) in self.files and self.search.find(name) is None:
            self.not_found.add(name)

    def record(self) -> dict[str, Any]:
        """The record for the result, without files that nobody can find again. Raises SystemExit if the code of a file
        in it is no longer the one that ran."""
        modules, by_path = {}, {}
        for (name, path), content in self.contents.items():
            root, below = self._location(path)
            if name in self.namespaces:
                below = path_below_import_folder(name, os.path.basename(path))
            elif root == ELSEWHERE:
                continue  # nobody can find it again
            digest = file_digest(path, content)
            self._require_unchanged(path, below, content, digest)
            entry = {"root": root, "path": below, "digest": digest}
            if name in self.namespaces:
                modules[name] = entry
            else:
                by_path[f"{root}/{below}"] = entry
        return {
            "modules": dict(sorted(modules.items())),
            "namespaces": sorted({namespace for name in modules for namespace in self.namespaces[name]}),
            "by_path": [by_path[key] for key in sorted(by_path)],
            "not_found": sorted(name for name in self.not_found if name not in sys.modules and _is_name(name)),
            "others": self._other_modules(),
        }

    def _require_unchanged(self, path: str, below: str, content: bytes, digest: str) -> None:
        try:
            with open(path, "rb") as file:
                on_disk = file.read()
        except OSError:
            on_disk = None
        is_same = on_disk == content or (on_disk is not None and file_digest(path, on_disk) == digest)
        if not is_same or path in self.changed:
            raise SystemExit(f"{below}: {CHANGED}")

    def _other_modules(self) -> list[str]:
        """The top-level names of those other loaded modules that a new file in the working folder may hide."""
        recorded = {name.partition(".")[0] for name, _ in self.contents}
        names = {name.partition(".")[0] for name in list(sys.modules)} - recorded - self.users_names - PROGRAM_NAMES
        return sorted(name for name in names if _is_name(name) and not self._is_built_in(name))

    def _is_built_in(self, name: str) -> bool:
        location = self.search.find(name)
        return location is not None and location.first_path is None

    def _location(self, path: str) -> tuple[str, str]:
        """The deepest root of a file, and its path below it; ELSEWHERE and "" for an installed file, or without one."""
        if not is_installed(path):
            for form in (path, os.path.realpath(path)):
                for root, folder in self.roots:
                    below = form.removeprefix(f"{folder}{os.sep}")
                    if below != form and not below.startswith(LINK_PREFIX):
                        return root, below
        return ELSEWHERE, ""


def _roots() -> list[tuple[str, str]]:
    """(root, folder) for the folders of this project and of the run, the deepest first."""
    working_folders = [os.getcwd(), WORKING_LINK] if os.path.islink(WORKING_LINK) else [os.getcwd()]
    folders = [(PROJECT, CHECKOUT), *((WORKING, folder) for folder in working_folders)]
    roots = [*folders, *((root, os.path.realpath(folder)) for root, folder in folders)]
    return sorted(roots, key=lambda root: len(root[1]), reverse=True)


def _is_name(name: str) -> bool:
    """Whether this can be the name of a module. A program may try to import any text, such as a private path, which
    must not be recorded."""
    return all(part.isidentifier() for part in name.split("."))


def file_digest(path: str, content: bytes) -> str:
    """The digest of a loaded file: of its code without comments; of every byte for extension modules, and for installed
    files, which may have a million lines, too many to parse."""
    if is_installed(path) or path.endswith(tuple(EXTENSION_SUFFIXES)):
        return bytes_digest(content)
    return code_digest(content)


class _NotFoundFinder:
    """The last finder: it is called for modules that no other finder has."""

    def __init__(self, recorder: CodeRecorder) -> None:
        self._recorder = recorder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        frame = sys._getframe(1)
        while frame is not None and _is_of_importlib(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self._recorder.add_not_found(name, frame.f_code.co_filename)


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
        loader.get_code = _recording_code(_recorder, loader.get_code)
    ExtensionFileLoader.create_module = _recording_extension(_recorder, ExtensionFileLoader.create_module)
    sys.meta_path.append(_NotFoundFinder(_recorder))


def record_packages(targets: Iterable[str]) -> None:
    """Records the files of the packages of `targets`, even if these are installed; `targets` are what is measured, as
    "package.module:name". Does nothing before start_code_recorder."""
    if _recorder is not None:
        _recorder.add_packages(packages_of(targets))


def loaded_code() -> dict[str, Any] | None:
    """The record of what this process has loaded; None without start_code_recorder. Raises SystemExit if a recorded
    file is no longer the one that ran."""
    return None if _recorder is None else _recorder.record()


def _recording_code(recorder: CodeRecorder, original):
    """A loader's get_code that records the bytes of a file, and compiles those of a source, never an older .pyc."""

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


def _recording_extension(recorder: CodeRecorder, original):
    """A loader's create_module that records the extension module."""

    def create_module(loader, spec):
        if recorder.is_recorded(spec.name, spec.origin):
            recorder.add(spec.name, spec.origin, loader.get_data(spec.origin))
        return original(loader, spec)

    return create_module
