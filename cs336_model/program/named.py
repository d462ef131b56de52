"""What "module:name" names: found, wrapped in a range, or replaced; or the reason in one line why it cannot be."""

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from cs336_model.program.spec import MODULES, RunSpec
from cs336_model.ranges import span


class UnusableModel(Exception):
    """What is wrong with the model that config.yaml names, and what to do about it; the message is one line."""


def said(error: BaseException) -> str:
    """An error in one line, with the file and line that raised it."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{_where(error)}"


def _where(error: BaseException) -> str:
    traceback, last = error.__traceback__, None
    while traceback is not None:
        last, traceback = traceback, traceback.tb_next
    if last is None:
        return ""
    return f" ({Path(last.tb_frame.f_code.co_filename).name}, line {last.tb_lineno})"


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


def prepare_functions(spec: RunSpec) -> None:
    """Replaces and annotates the functions that the spec names, in their modules."""
    for target, other in spec.replace.items():
        replace(target, other)
    if spec.annotate != MODULES:
        for name, target in spec.annotate.items():
            annotate(name, target)


def annotate(name: str, target: str) -> None:
    """Puts the range `name` around the function at "module:function", in that module. A module that imported the
    function by name earlier keeps its own reference: name the module that calls it."""
    owner, attribute = find_owner(target)
    setattr(owner, attribute, _in_range(name, getattr(owner, attribute)))


def replace(target: str, other: str) -> None:
    """Puts the function at `other` in the place of that at `target`. Raises UnusableModel where their parameters have
    other names: what calls the one could not call the other."""
    owner, attribute = find_owner(target)
    there, here = (list(inspect.signature(one).parameters) for one in (getattr(owner, attribute), find(other)))
    if there != here:
        raise UnusableModel(
            f"{other!r} takes ({', '.join(here)}) and cannot stand for {target!r}, which takes ({', '.join(there)})"
        )
    setattr(owner, attribute, find(other))


def _in_range(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with span(name):
            return function(*args, **kwargs)

    return wrapped
