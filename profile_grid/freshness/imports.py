"""Which files of this project a program imports, and the digest of their code, without running it.

Snakemake does not see what the program of a job imports. The imports of a file and its digest are remembered by its
content, since parsing all of this project takes half a second and looking them up 10 ms.
"""

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

from cs336_model.program.code_digest import code_digest
from profile_grid.freshness.digests import digest_of_source, digest_of_text, read_cache, write_cache

SUFFIXES = (".py", *EXTENSION_SUFFIXES)  # of the files of modules
CACHE_FILE = Path(".snakemake/sources.json")
MAX_REMEMBERED = 2000  # files; beyond that, most are old versions

_used_facts: dict[str, dict] = {}  # the `_facts` that this process has used, by the SHA-256 of the source's content


class Import(NamedTuple):
    """One `from MODULE import NAMES`, or `import MODULE` without names; `level` counts the dots of a relative one."""

    level: int
    module: str
    names: tuple[str, ...] = ()


class UnreadableSource(ValueError):
    """A file is not Python that can be parsed; the message names the file, the line and the cause."""


def imported_files(root: Path, *paths: str) -> list[str]:
    """The files below `root` that these files import, directly or not, and the files themselves; sorted, relative.

    Raises UnreadableSource if one of them cannot be parsed.
    """
    seen, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting += _imported_by(root, path)
    return sorted(seen)


def imported_packages(root: Path, *paths: str) -> set[str]:
    """The top-level packages that these files, and all files below `root` that they import, name in their imports."""
    return {package for path in imported_files(root, *paths) for package in _packages_named_in(root, path)}


def digest_of_code(root: Path, paths: Iterable[str]) -> str:
    """One digest of the code in these files below `root`; their times, comments and docstrings do not count.

    Raises UnreadableSource if one of them cannot be parsed.
    """
    return digest_of_text("".join(f"{path}\0{_digest_of_file(root, path)}\0" for path in sorted({*paths})))


def _digest_of_file(root: Path, path: str) -> str:
    content = (root / path).read_bytes()
    try:
        return _facts(content)["digest"] if path.endswith(".py") else digest_of_source(path, content)
    except ValueError as error:
        raise UnreadableSource(f"{path}: {error}") from error


def digest_of_loaded(content: bytes) -> str:
    """`code_digest` of a file that a measured program has loaded. It is parsed only if its facts are not remembered."""
    key = hashlib.sha256(content).hexdigest()
    facts = _used_facts.get(key) or _remembered_facts().get(key)
    return facts["digest"] if facts else code_digest(content)


@cache
def files_of_module(root: Path, module: str) -> tuple[str, ...]:
    """The file of a module and the __init__.py of the packages around it, as far as they are below `root`."""
    package, _, _ = module.rpartition(".")
    package_files = files_of_module(root, package) if package else ()
    if package and not os.path.isdir(root / package.replace(".", "/")):
        return package_files
    stem = module.replace(".", "/")
    candidates = [stem + suffix for suffix in ("/__init__.py", *SUFFIXES)]
    return (*package_files, *(path for path in candidates if os.path.isfile(f"{root}/{path}")))


@cache
def _imported_by(root: Path, path: str) -> list[str]:
    if not path.endswith(".py"):
        return []
    try:
        modules = dict.fromkeys(_modules((root / path).read_bytes(), path.split("/")[:-1]))
    except UnreadableSource as error:
        raise UnreadableSource(f"{path}: {error}") from error
    return [file for module in modules for file in files_of_module(root, module)]


@cache
def _packages_named_in(root: Path, path: str) -> frozenset[str]:
    statements = import_statements((root / path).read_bytes()) if path.endswith(".py") else ()
    return frozenset(statement.module.partition(".")[0] for statement in statements if not statement.level)


def _modules(content: bytes, package: list[str]) -> Iterator[str]:
    """The modules that the import statements of a file may load; a name imported from a package may be a module in it.
    `package` lists the folders around the file, outermost first: a relative import with one dot starts below the last
    of them, with two dots below the one before."""
    for statement in import_statements(content):
        enclosing = package[: len(package) + 1 - statement.level] if statement.level else []
        for name in ("", *statement.names):
            if module := ".".join(filter(None, (*enclosing, statement.module, name))):
                yield module


def import_statements(content: bytes) -> list[Import]:
    """Every import statement, wherever it is, except those under `if TYPE_CHECKING:`, which never run.

    Raises UnreadableSource if the file cannot be parsed.
    """
    return [Import(level, module, tuple(names)) for level, module, names in _facts(content)["imports"]]


def remember_sources() -> None:
    """Writes new facts for the next process, if Snakemake has a folder here that can be written to."""
    if not _used_facts.keys() <= _remembered_facts().keys():
        older = {} if len(_remembered_facts()) > MAX_REMEMBERED else _remembered_facts()
        write_cache(CACHE_FILE, older | _used_facts)


def forget_imports() -> None:
    """Clears what this process remembers by path, so that changed files are read again."""
    files_of_module.cache_clear()
    _imported_by.cache_clear()
    _packages_named_in.cache_clear()


def _facts(content: bytes) -> dict:
    """{"imports": [[level, module, names], ...], "digest": of the code} of a Python source."""
    key = hashlib.sha256(content).hexdigest()
    if key not in _used_facts:
        _used_facts[key] = _remembered_facts().get(key) or _parse_facts(content)
    return _used_facts[key]


@cache
def _remembered_facts() -> dict[str, dict]:
    return read_cache(CACHE_FILE, lambda facts: facts.keys() == {"imports", "digest"})


def _parse_facts(content: bytes) -> dict:
    try:
        return {"imports": list(_imports_below(ast.parse(content))), "digest": digest_of_source(".py", content)}
    except SyntaxError as error:
        raise UnreadableSource(f"line {error.lineno}: {error.msg}") from error
    except ValueError as error:  # a NUL byte
        raise UnreadableSource(str(error)) from error


def _imports_below(node: ast.AST) -> Iterator[Import]:
    """The imports in a node. Statements are found in bodies only, so expressions are not walked."""
    if isinstance(node, ast.Import):
        yield from (Import(0, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield Import(node.level, node.module or "", tuple(alias.name for alias in node.names))
    bodies = ("orelse",) if _is_for_type_checkers(node) else ("body", "orelse", "handlers", "finalbody", "cases")
    for body in bodies:
        for statement in getattr(node, body, ()):
            yield from _imports_below(statement)


def _is_for_type_checkers(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:` or `if typing.TYPE_CHECKING:`."""
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))
