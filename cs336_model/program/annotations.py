"""Ranges put around other people's functions, and functions of the same signature put in their place."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from cs336_model.program.named import find, find_owner
from cs336_model.program.spec import MODULES, RunSpec
from cs336_model.program.unusable import UnusableModel
from cs336_model.ranges import span


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
