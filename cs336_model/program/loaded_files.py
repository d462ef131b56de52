"""The source files that this process has loaded: what a change of would make its result another's. Imports no torch."""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath
from types import ModuleType

_INSTALLED = {"site-packages", "dist-packages"}
_OF_THE_HOST = {"sitecustomize", "usercustomize"}  # Python's own hooks for the administrator and the user


def loaded_files(named: Iterable[str] = ()) -> dict[str, str]:
    """The digest of every loaded file, by its path below the folder that it was imported from: "my_model.py".

    Neither the standard library's files nor those of installed packages, save the packages of what is measured:
    `named` holds its functions, as "package.module:function".
    """
    tops = {target.partition(":")[0].partition(".")[0] for target in named}
    found = {}
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "")
        full_name = _imported_as(name, module)
        if path.is_file() and _counts(full_name.partition(".")[0], tops):
            found[path_below_import_folder(full_name, path.name)] = digest_of_file(path)
    return dict(sorted(found.items()))


def path_below_import_folder(module: str, file_name: str) -> str:
    """Where the file of a module lies: "package/module.py", "package/__init__.py"."""
    parents = module.split(".") if file_name.startswith("__init__.") else module.split(".")[:-1]
    return "/".join([*parents, file_name])


def digest_of_file(path: Path) -> str:
    """What changes with the content of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _imported_as(name: str, module: ModuleType) -> str:
    """The module's name; that of the program itself, which Python calls __main__, where it was started by its name."""
    spec = getattr(module, "__spec__", None)
    return spec.name if name == "__main__" and spec is not None else name


def _counts(top: str, named: set[str]) -> bool:
    if top in sys.stdlib_module_names or top in _OF_THE_HOST:
        return False
    return top in named or not is_installed(_folder_of(top))


def is_installed(path: PurePath) -> bool:
    """Whether a file or folder lies where pip installs."""
    return not _INSTALLED.isdisjoint(path.parts)


def _folder_of(top: str) -> PurePath:
    """Where a top-level package or module lies; a namespace package has no file of its own."""
    module = sys.modules.get(top)
    paths = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", [])]
    return PurePath(next((path for path in paths if path), ""))
