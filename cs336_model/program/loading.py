"""Notes the files that a measured process loads, when it loads them: a digest is that of the bytes that ran.

`python -m cs336_model.program` calls `keep_account` before it imports anything else. A file counts unless it belongs to
the standard library or to an installed package; of installed packages only the measured ones count (`count_packages`).
Uses only the standard library.
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
    is_of_python,
    path_below_import_folder,
)

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKING, PROJECT, ELSEWHERE = ".", "project", "elsewhere"  # what the path of a file is relative to
CHANGED = "changed while it was measured; run again"
ALIAS = ".host-"  # prefix of the links to other folders, in the folder where nsys runs
WORKING_LINK = ".working-folder"  # in the same folder, the link to the working folder
BY_VERSION = {"torch", "torchgen", "functorch", "triton"}  # identified by version, also if built from source
NO_MODULES = {"__main__", "__mp_main__"}  # names of the program itself
OF_THE_HOST = {"sitecustomize", "usercustomize"}  # Python's own hooks for the administrator and the user


class Account:
    """The files that this process has loaded up to now."""

    def __init__(self) -> None:
        self.search = ModuleSearch(list(sys.path), list(sys.meta_path))
        self.packages: set[str] = set()  # installed ones that count
        self.contents: dict[tuple[str, str], bytes] = {}  # of the files that count, by module and path
        self.named: dict[str, list[str]] = {}  # modules that are found by name, with their namespace packages
        self.changed: set[str] = set()  # files that were loaded again with another content
        self.not_found: set[str] = set()
        self.files: set[str] = set()
        # names that the user's folders offered at first: if one was loaded from elsewhere, it will be next time, too
        self.passed_over = set().union(*map(importable_names, self._users_folders()))
        self.roots = self._roots()
        self._note_loaded()

    def counts(self, name: str, path: str) -> bool:
        """Whether a change of this file may change the measurement."""
        top = name.partition(".")[0]
        if is_installed(path):
            return top in self.packages
        return top not in BY_VERSION | OF_THE_HOST and not is_of_python(path)

    def note(self, name: str, path: str, content: bytes) -> None:
        """Notes a file that counts and is being loaded."""
        path = os.path.abspath(path)
        self.files.add(path)
        if self.contents.setdefault((name, path), content) != content:
            self.changed.add(path)
        location = self.search.find(name)
        if location and location.file == path:
            parents = name.split(".")[:-1]
            above = [".".join(parents[: number + 1]) for number in range(len(parents))]
            self.named[name] = [parent for parent in above if self.search.find(parent).file is None]

    def count_packages(self, packages: set[str]) -> None:
        """Makes the files of installed packages count, including those that are already loaded."""
        self.packages |= packages - BY_VERSION
        self._note_loaded()

    def _note_loaded(self) -> None:
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)
            name, path = getattr(spec, "name", name), getattr(spec, "origin", None)
            if path and os.path.abspath(path) not in self.files and os.path.isfile(path) and self.counts(name, path):
                with open(path, "rb") as file:
                    self.note(name, path, file.read())

    def note_not_found(self, name: str, importer: str) -> None:
        """Notes that code in the file `importer` imported a module that no finder has."""
        if os.path.abspath(importer) in self.files and self.search.find(name) is None:
            self.not_found.add(name)

    def report(self) -> dict[str, Any]:
        """The record for the result. Raises SystemExit if a file on disk is no longer the one that ran."""
        modules, by_path, namespaces = {}, {}, set()
        for (name, path), content in self.contents.items():
            root, below = self._location(path)
            if name in self.named:
                below = path_below_import_folder(name, os.path.basename(path))
                namespaces.update(self.named[name])
            elif root == ELSEWHERE:
                continue  # nobody can find it again
            digest = file_digest(path, content)
            self._require_unchanged(path, below, content, digest)
            entry = {"root": root, "path": below, "digest": digest}
            if name in self.named:
                modules[name] = entry
            else:
                by_path[f"{root}/{below}"] = entry
        return {
            "modules": dict(sorted(modules.items())),
            "namespaces": sorted(namespaces),
            "by_path": [by_path[key] for key in sorted(by_path)],
            "not_found": sorted(name for name in self.not_found if name not in sys.modules and _is_name(name)),
            "others": self._others(),
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

    def _others(self) -> list[str]:
        """The top-level names of all other loaded modules, which a new file in the working folder may hide."""
        counted = {name.partition(".")[0] for name, _ in self.contents}
        tops = {name.partition(".")[0] for name in list(sys.modules)} - counted - self.passed_over - NO_MODULES
        return sorted(name for name in tops if _is_name(name) and not _is_part_of_python(self.search, name))

    def _users_folders(self) -> list[str]:
        return [folder for folder in sys.path if not is_installed(folder) and not is_of_python(folder)]

    def _roots(self) -> list[tuple[str, str]]:
        working = {os.getcwd(), os.path.realpath(os.getcwd())}
        if os.path.islink(WORKING_LINK):
            working.add(os.path.realpath(WORKING_LINK))
        project = {CHECKOUT, os.path.realpath(CHECKOUT)}
        return [(PROJECT, folder) for folder in project] + [(WORKING, folder) for folder in working]

    def _location(self, path: str) -> tuple[str, str]:
        """The deepest root of a file, and its path below that."""
        if not is_installed(path):
            for form in (path, os.path.realpath(path)):
                below = [
                    (len(folder), root, os.path.relpath(form, folder))
                    for root, folder in self.roots
                    if form.startswith(f"{folder}{os.sep}")
                ]
                if fitting := [entry for entry in below if not entry[2].startswith(ALIAS)]:
                    return max(fitting)[1:]
        return ELSEWHERE, ""


def _is_name(name: str) -> bool:
    """Whether this can be the name of a module. A program may try to import any text, such as a private path, which
    must not be recorded."""
    return all(part.isidentifier() for part in name.split("."))


def _is_part_of_python(search: ModuleSearch, name: str) -> bool:
    location = search.find(name)
    return location is not None and location.first is None


def file_digest(path: str, content: bytes) -> str:
    """The digest of a loaded file: of its code without comments; of every byte for extension modules, and for installed
    files, which may have a million lines, too many to parse."""
    if is_installed(path) or path.endswith(tuple(EXTENSION_SUFFIXES)):
        return bytes_digest(content)
    return code_digest(content)


class _NotFound:
    """The last finder: it is called for modules that no other finder has."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        frame = sys._getframe(1)
        while frame is not None and _is_of_importlib(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self._account.note_not_found(name, frame.f_code.co_filename)


def _is_of_importlib(file: str) -> bool:
    return file.startswith("<frozen importlib") or os.path.basename(os.path.dirname(file)) == "importlib"


_accounts: list[Account] = []  # the one of this process, after keep_account


def keep_account() -> None:
    """Starts to note what this process loads."""
    if _accounts:
        return
    account = Account()
    _accounts.append(account)
    for loader in (SourceFileLoader, SourcelessFileLoader):
        loader.get_code = _noting_code(account, loader.get_code)
    ExtensionFileLoader.create_module = _noting_extension(account, ExtensionFileLoader.create_module)
    sys.meta_path.append(_NotFound(account))


def count_packages(targets: Iterable[str]) -> None:
    """Makes the files of these packages count, wherever they are; `targets` are what is measured,
    "package.module:name". Does nothing before keep_account."""
    for account in _accounts:
        account.count_packages({target.partition(":")[0].partition(".")[0] for target in targets})


def code_loaded() -> dict[str, Any] | None:
    """The record of what this process has loaded; None without keep_account. Raises SystemExit if a file is no longer
    the one that ran."""
    return _accounts[0].report() if _accounts else None


def _noting_code(account: Account, original):
    """A loader's get_code that compiles the noted bytes, never an older .pyc."""

    def get_code(loader, fullname):
        path = loader.get_filename(fullname)
        if not account.counts(fullname, path):
            return original(loader, fullname)
        content = loader.get_data(path)
        account.note(fullname, path, content)
        if isinstance(loader, SourceFileLoader):
            return loader.source_to_code(content, path)
        return original(loader, fullname)

    return get_code


def _noting_extension(account: Account, original):
    def create_module(loader, spec):
        if account.counts(spec.name, spec.origin):
            account.note(spec.name, spec.origin, loader.get_data(spec.origin))
        return original(loader, spec)

    return create_module
