"""Which files of this project a program imports, read from the sources: nothing is run, nothing heavy is imported.

Snakemake does not see what a job's program imports; with these files, or their digest, it does. They are read on every
start, so import statements are found by their form (5 ms for 20 files) instead of parsed (90 ms).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n#;]+)", re.MULTILINE)


def imported_files(root: Path, *paths: str) -> list[str]:
    """The files below `root` that these files import, directly or not, they themselves included; sorted, relative."""
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


def files_of_module(root: Path, module: str) -> list[str]:
    """The file of a module and the __init__.py of the packages around it; none when the module is not below `root`."""
    parts = module.split(".")
    if not _is_here(root, parts[0]):
        return []
    candidates = ["/".join([*parts[:depth], "__init__.py"]) for depth in range(1, len(parts) + 1)]
    return [path for path in [*candidates, "/".join(parts) + ".py"] if (root / path).is_file()]


@cache
def _is_here(root: Path, top: str) -> bool:
    return (root / top).is_dir() or (root / f"{top}.py").is_file()


@cache
def _imported_by(root: Path, path: str) -> list[str]:
    modules = dict.fromkeys(_modules((root / path).read_text(encoding="utf-8"), path.split("/")[:-1]))
    return [file for module in modules for file in files_of_module(root, module)]


def _modules(source: str, package: list[str]) -> Iterator[str]:
    """The modules that the import statements may load; what is imported from a package may be a module of it."""
    for origin, what in IMPORT.findall(source):
        names = [name.split()[0] for name in re.sub(r"#.*|[()]", "", what).split(",") if name.strip()]
        if not origin:
            yield from names
            continue
        name = origin.lstrip(".")
        up = len(origin) - len(name)
        base = [*(package[: len(package) + 1 - up] if up else []), *([name] if name else [])]
        yield from (".".join(parts) for parts in (base, *([*base, name] for name in names)))
