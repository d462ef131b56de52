"""The import statements of a Python file, read from its syntax tree.

They are read on every start of Snakemake, so those of a file are remembered by the digest of its content: parsing all
of this project takes 150 ms, looking it up 10 ms.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from profile_grid.files import write_text

MEMORY = Path(".snakemake/imports.json")
FORMAT = 1


@dataclass(frozen=True)
class Import:
    """One `from MODULE import NAMES`, or `import MODULE` without names; `level` counts the dots of a relative one."""

    level: int
    module: str
    names: tuple[str, ...] = ()


class UnreadableSource(ValueError):
    """A file is no Python that can be parsed; the message names the line and the cause."""


def import_statements(content: bytes) -> list[Import]:
    """Every import that may run, wherever it stands; those under `if TYPE_CHECKING:` never do.

    Raises UnreadableSource where Python would not compile the file either.
    """
    key = hashlib.sha256(content).hexdigest()
    if key not in _used:
        remembered = _remembered()
        _used[key] = remembered[key] if key in remembered else _parsed(content)
    return [Import(level, module, tuple(names)) for level, module, names in _used[key]]


def remember_imports() -> None:
    """Keeps for the next start what was read in this one, where Snakemake has a folder that can be written to."""
    if MEMORY.parent.is_dir() and not _used.keys() <= _remembered().keys():
        try:
            write_text(MEMORY, json.dumps({"format": FORMAT, "files": _used}))
        except OSError:
            return  # the next start parses again


_used: dict[str, list] = {}


@cache
def _remembered() -> dict[str, list]:
    try:
        memory = json.loads(MEMORY.read_text())
        return memory["files"] if memory["format"] == FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: the files are parsed
        return {}


def _parsed(content: bytes) -> list:
    try:
        return [[one.level, one.module, list(one.names)] for one in _imports_below(ast.parse(content))]
    except SyntaxError as error:
        raise UnreadableSource(f"line {error.lineno}: {error.msg}") from error
    except ValueError as error:  # a NUL byte
        raise UnreadableSource(str(error)) from error


def _imports_below(tree: ast.AST) -> Iterator[Import]:
    """Statements stand in bodies only, so expressions are not walked."""
    if isinstance(tree, ast.Import):
        yield from (Import(0, alias.name) for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        yield Import(tree.level, tree.module or "", tuple(alias.name for alias in tree.names))
    bodies = ("orelse",) if _is_for_type_checkers(tree) else ("body", "orelse", "handlers", "finalbody", "cases")
    for body in bodies:
        for statement in getattr(tree, body, ()):
            yield from _imports_below(statement)


def _is_for_type_checkers(tree: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:` or `if typing.TYPE_CHECKING:`."""
    test = getattr(tree, "test", None)
    return isinstance(tree, ast.If) and "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))
