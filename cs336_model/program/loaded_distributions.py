"""The versions of the installed packages that the measured model refers to: with another version of a package, the
model may run other code. Uses only the standard library."""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import FunctionType, ModuleType

from cs336_model.program.module_search import is_installed, packages_of

_distributions_of_packages = cache(packages_distributions)  # it reads a file of every installed distribution
# packages whose references are not followed: the sources of the first have digests, and torch's version is always added
_NOT_FOLLOWED = {"cs336_model", "torch"}


def loaded_distributions(targets: Iterable[str] = ()) -> dict[str, str]:
    """The versions of the distributions of the packages in `targets`, and of all packages to which these refer,
    directly or not.

    `targets` are what is measured, as "package.module:name". PyTorch is included whenever it is loaded; packages that
    only PyTorch imports are not.
    """
    packages = _referenced_packages(packages_of(targets) - _NOT_FOLLOWED)
    distributions = _distributions_of_packages() if packages else {}
    names = {name for package in packages for name in distributions.get(package, [])}
    if "torch" in sys.modules:
        names.add("torch")
    return {name: known for name in sorted(names) if (known := distribution_version(name)) is not None}


def distribution_version(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _referenced_packages(packages: set[str]) -> set[str]:
    """These top-level packages, and all packages that their modules refer to, directly or not."""
    modules: dict[str, list[ModuleType]] = {}
    for name, module in list(sys.modules.items()):
        modules.setdefault(name.partition(".")[0], []).append(module)
    seen, waiting = set(), set(packages)
    while waiting:
        package = waiting.pop()
        seen.add(package)
        references = {name for module in modules.get(package, []) for name in _packages_named_in(module)}
        loaded_references = references & modules.keys()
        waiting |= loaded_references - seen - sys.stdlib_module_names - _NOT_FOLLOWED
    return seen


def _packages_named_in(module: ModuleType) -> Iterator[str]:
    """The top-level packages to which a module refers: those of the modules, classes and functions among its values,
    and of the classes of its other values. Also the packages that its source imports, unless the module is installed:
    installed sources may have a million lines."""
    for value in list(getattr(module, "__dict__", {}).values()):
        if isinstance(value, ModuleType):
            name = value.__name__
        else:
            name = (value if isinstance(value, type | FunctionType) else type(value)).__module__
        if isinstance(name, str):  # a class may have anything there
            yield name.partition(".")[0]
    path = Path(getattr(module, "__file__", None) or "")
    if path.suffix == ".py" and path.is_file() and not is_installed(path):
        yield from _imported_packages(path)


@cache
def _imported_packages(path: Path) -> set[str]:
    """The top-level packages in the absolute imports of a source, those inside functions included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module.partition(".")[0])
    return names
