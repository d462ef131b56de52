"""The model under measurement: built from "module:callable", with ranges put around other people's functions."""

import functools
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.effects import batch_shape
from cs336_model.ranges import span


def build_model(spec: RunSpec, device: torch.device) -> nn.Module:
    """The spec's model, seeded, its weights made on the device: nothing is initialised on the CPU and copied."""
    constructor = _find(spec.constructor)
    for name, target in spec.annotate.items():
        annotate(name, target)
    torch.manual_seed(spec.seed)
    with torch.device(device):
        return constructor(**spec.constructor_args).to(device)


def make_batch(spec: RunSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random tokens and the tokens that follow them, int64 (batch, position) each, made on the device from the seed."""
    generator = torch.Generator(device=device).manual_seed(spec.seed)
    tokens = torch.randint(spec.vocab_size, batch_shape(spec), generator=generator, device=device)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def annotate(name: str, target: str) -> None:
    """Puts the range `name` around the function at "module:function", in that module. A module that imported the
    function by name earlier keeps its own reference: name the module that calls it."""
    owner, attribute = _find_owner(target)
    function = _attribute(owner, attribute, target)
    setattr(owner, attribute, _in_range(name, function))


def _in_range(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with span(name):
            return function(*args, **kwargs)

    return wrapped


def _find(target: str) -> Callable[..., Any]:
    owner, attribute = _find_owner(target)
    return _attribute(owner, attribute, target)


def _find_owner(target: str) -> tuple[ModuleType | type, str]:
    """What holds the last name of "module:function" or "module:Class.method", and that name."""
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise ValueError(f"{target!r} is not of the form module:name")
    try:
        owner = import_module(module_name)
    except ModuleNotFoundError as error:
        message = f"{target!r}: no module {error.name!r}; it must be importable from the folder the program runs in"
        raise ModuleNotFoundError(message, name=error.name) from error
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = _attribute(owner, parent, target)
    return owner, attribute


def _attribute(owner: Any, attribute: str, target: str) -> Any:
    if not hasattr(owner, attribute):
        message = f"{target!r}: {getattr(owner, '__name__', owner)} has no attribute {attribute!r}; check the spelling"
        raise AttributeError(message)
    return getattr(owner, attribute)
