"""The versions of the installed packages that the measured model refers to: with another version, the model may be
another program. Uses only the standard library."""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import FunctionType, ModuleType

from cs336_model.program.module_search import is_installed, packages_of

_distributions_of_packages = cache(packages_distributions)  # it reads a file of every installed distribution
_NOT_FOLLOWED = {
    "cs336_model",
    "torch",
}  # the first has a digest of its sources, torch is always added


def loaded_distributions(targets: Iterable[str] = ()) -> dict[str, str]:
    """The version of every distribution with a package of `targets`, or one that those refer to, directly or not.

    `targets` are what is measured. PyTorch's version is there whenever it is loaded; packages that only PyTorch imports
    are left out.
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
        waiting |= (references & modules.keys()) - seen - sys.stdlib_module_names - _NOT_FOLLOWED
    return seen


def _packages_named_in(module: ModuleType) -> Iterator[str]:
    """The top-level package of each module, class and function in a module, and of the class of every other value. Also
    the packages that its source imports, unless it is installed: an installed one may have a million lines."""
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
