"""Which files of this project a program imports: nothing is run, nothing heavy is imported.

Snakemake does not see what a job's program imports; with these files, or their digest, it does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from workflow.import_statements import UnreadableSource, import_statements

SUFFIXES = (".py", *EXTENSION_SUFFIXES)


def imported_files(root: Path, *paths: str) -> list[str]:
    """The files below `root` that these files import, directly or not, they themselves included; sorted, relative.

    Raises UnreadableSource, with the file's name, where one of them is no Python.
    """
    seen, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += _imported_by(root, path)
    return sorted(seen)


def digest_of_files(root: Path, paths: list[str]) -> str:
    """One value for the names and contents of these files; their times have no part in it."""
    digest = hashlib.sha256()
    for path in paths:
        content = (root / path).read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


@cache
def files_of_module(root: Path, module: str) -> tuple[str, ...]:
    """The file of a module and the __init__.py of the packages around it; none when the module is not below `root`."""
    package, _, _ = module.rpartition(".")
    around = files_of_module(root, package) if package else ()
    if package and not os.path.isdir(root / package.replace(".", "/")):
        return around
    stem = module.replace(".", "/")
    own = [stem + suffix for suffix in ("/__init__.py", *SUFFIXES)]
    return (*around, *(path for path in own if os.path.isfile(f"{root}/{path}")))


@cache
def _imported_by(root: Path, path: str) -> list[str]:
    if not path.endswith(".py"):
        return []
    try:
        modules = dict.fromkeys(_modules((root / path).read_bytes(), path.split("/")[:-1]))
    except UnreadableSource as error:
        raise UnreadableSource(f"{path}: {error}") from error
    return [file for module in modules for file in files_of_module(root, module)]


def _modules(content: bytes, package: list[str]) -> Iterator[str]:
    """The modules that the import statements may load; what is imported from a package may be a module of it."""
    for found in import_statements(content):
        around = package[: len(package) + 1 - found.level] if found.level else []
        base = [*around, *([found.module] if found.module else [])]
        yield from (".".join(parts) for parts in (base, *([*base, name] for name in found.names)) if parts)
