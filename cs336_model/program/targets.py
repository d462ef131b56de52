"""Finds targets, such as "module:function", puts them into ranges, or replaces them; errors say in one line why not."""

import inspect
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from cs336_model.program.spec import MODULES, RunSpec
from cs336_model.ranges import in_range


class UnusableModel(Exception):
    """The model that config.yaml names cannot be measured; the message is one line, with what to do about it."""


def one_line_error(error: BaseException) -> str:
    """An error in one line, with the file and line that raised it, if it was raised."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{_location(error)}"


def _location(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def find_object(target: str) -> Any:
    """The object that "module:name" or "module:Class.method" names. Raises UnusableModel if it does not exist."""
    owner, attribute = find_owner(target)
    return getattr(owner, attribute)


def find_owner(target: str) -> tuple[ModuleType | type, str]:
    """(owner, attribute): for "module:function" or "module:Class.method", the module or class that holds the function,
    and the name of the function in it. Raises UnusableModel if it does not exist."""
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise UnusableModel(f"{target!r} is not of the form module:name")
    owner = _import(module_name, target)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = _attribute(owner, parent, target)
    _attribute(owner, attribute, target)
    return owner, attribute


def _import(module: str, target: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        message = f"{target!r}: no module {error.name!r}; it must be importable from the folder the program runs in"
        raise UnusableModel(message) from error
    except Exception as error:  # whatever the module does when it is imported
        raise UnusableModel(f"{target!r}: importing {module} raises {one_line_error(error)}") from error


def _attribute(owner: Any, name: str, target: str) -> Any:
    if not hasattr(owner, name):
        owner_name = getattr(owner, "__name__", owner)
        raise UnusableModel(f"{target!r}: {owner_name} has no attribute {name!r}; check the spelling")
    return getattr(owner, name)


def prepare_functions(spec: RunSpec) -> None:
    """Replaces and annotates the functions that the spec names, in their modules."""
    for target, replacement in spec.replace.items():
        replace(target, replacement)
    if spec.annotate != MODULES:
        for name, target in spec.annotate.items():
            annotate(name, target)


def annotate(name: str, target: str) -> None:
    """Puts the range `name` around the function "module:function" in that module. Modules that have imported the
    function by name keep the original, so a target should name the module that calls the function."""
    owner, attribute = find_owner(target)
    setattr(owner, attribute, in_range(name, getattr(owner, attribute)))


def replace(target: str, replacement: str) -> None:
    """Replaces the function at `target` by the one at `replacement`. Raises UnusableModel if the names of their
    parameters differ: callers of one could not call the other. Those of a builtin, such as torch.tanh, are unknown."""
    owner, attribute = find_owner(target)
    old, new = getattr(owner, attribute), find_object(replacement)
    takes_old, takes_new = map(_parameter_names, (old, new))
    if takes_old is not None and takes_new is not None and takes_old != takes_new:
        raise UnusableModel(
            f"{replacement!r} takes ({takes_new}) and cannot replace {target!r}, which takes ({takes_old})"
        )
    setattr(owner, attribute, new)


def _parameter_names(function: Any) -> str | None:
    """The names of a function's parameters; None for a builtin without a signature."""
    try:
        return ", ".join(inspect.signature(function).parameters)
    except ValueError:
        return None
