"""What "module:name" names: found, or said in one line why it cannot be."""

from importlib import import_module
from types import ModuleType
from typing import Any

from cs336_model.program.unusable import UnusableModel, said


def find(target: str) -> Any:
    """What "module:name" or "module:Class.method" names."""
    owner, attribute = find_owner(target)
    return getattr(owner, attribute)


def find_owner(target: str) -> tuple[ModuleType | type, str]:
    """What holds the last name of "module:function" or "module:Class.method", and that name, which is there."""
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise UnusableModel(f"{target!r} is not of the form module:name")
    owner = _imported(module_name, target)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(_with(owner, parent, target), parent)
    return _with(owner, attribute, target), attribute


def _imported(module: str, target: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        message = f"{target!r}: no module {error.name!r}; it must be importable from the folder the program runs in"
        raise UnusableModel(message) from error
    except Exception as error:  # whatever their module does when it is imported
        raise UnusableModel(f"{target!r}: importing {module} raises {said(error)}") from error


def _with(owner: Any, attribute: str, target: str) -> Any:
    if not hasattr(owner, attribute):
        name = getattr(owner, "__name__", owner)
        raise UnusableModel(f"{target!r}: {name} has no attribute {attribute!r}; check the spelling")
    return owner
