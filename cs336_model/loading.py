"""A model by the names in a specification: made, its functions put into ranges or replaced, and its outputs read."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from cs336_model.model import cross_entropy
from cs336_model.ranges import in_range
from cs336_model.spec import Spec

SET_VOCABULARY = "give the constructor vocab_size under program.arguments, or set vocab_size in config.yaml"


class UnusableModel(Exception):
    """The model that the configuration names cannot be measured; the message is one line, with what to do about it."""


def build_model(spec: Spec, device: torch.device) -> nn.Module:
    """The spec's model, seeded, with weights made on the device; without a backward pass in evaluation mode."""
    constructor = find_object(spec.constructor)
    config = find_object(spec.config) if spec.config else None
    for target, replacement in spec.replace.items():
        owner, attribute = find_owner(target)
        setattr(owner, attribute, find_object(replacement))
    for name, target in spec.annotate.items() if isinstance(spec.annotate, dict) else ():
        owner, attribute = find_owner(target)
        setattr(owner, attribute, in_range(name, getattr(owner, attribute)))
    arguments = spec.constructor_arguments()
    torch.manual_seed(spec.seed)
    try:
        with torch.device(device):
            model = constructor(config(**arguments)) if config else constructor(**arguments)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # whatever it raises
        called = f"{spec.constructor}, called with {', '.join(arguments) or 'no arguments'}"
        raise UnusableModel(f"{called}, raised {_shorten(error)}; see program.arguments in config.yaml") from error
    if not isinstance(model, nn.Module):
        raise UnusableModel(f"{spec.constructor} returned {model!r:.100}, not a torch.nn.Module")
    largest = max((max(parameter.shape, default=0) for parameter in model.parameters()), default=0)
    if largest < spec.vocab_size:
        problem = f"made a model without a parameter for each of {spec.vocab_size} tokens"
        raise UnusableModel(f"{spec.constructor} {problem} (the largest dimension is {largest}): {SET_VOCABULARY}")
    return model.to(device).train("backward" in spec.phases)


def find_object(target: str) -> Any:
    """The object that "module:name" names. Raises UnusableModel if it does not exist."""
    return getattr(*find_owner(target))


def find_owner(target: str) -> tuple[ModuleType, str]:
    """(module that holds what the target names, the name in it). Raises UnusableModel if it does not exist."""
    module, _, attribute = target.partition(":")
    try:
        owner = import_module(module)
    except Exception as error:  # whatever the module does when it is imported
        remedy = "it must be importable from the folder the program runs in"
        raise UnusableModel(f"{target!r}: importing {module} raises {_shorten(error)}; {remedy}") from error
    if not hasattr(owner, attribute):
        raise UnusableModel(f"{target!r}: {module} has no attribute {attribute!r}; check the spelling")
    return owner, attribute


def loss_arguments(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The argument with which this model computes its loss; {} if it cannot. `targets` are the next tokens, `labels`
    the tokens themselves, which the model shifts, as Hugging Face's models do."""
    accepted = inspect.signature(model.forward).parameters
    tokens = {"targets": targets, "labels": inputs}
    return next(({name: tokens[name]} for name in tokens if name in accepted), {})


def read_output(returned: Any, vocab_size: int) -> tuple[Tensor, Tensor | None]:
    """Logits (batch, position, vocabulary), and the loss if the model computed it, in what it returned: a tensor; of a
    tuple the first floating-point tensor with three dimensions and the first with none; of an object or mapping its
    `logits` and `loss`. Raises UnusableModel."""
    if isinstance(returned, Tensor):
        logits, loss = returned, None
    elif isinstance(returned, (tuple, list)) and not hasattr(returned, "logits"):
        tensors = [value for value in returned if isinstance(value, Tensor) and value.is_floating_point()]
        logits, loss = (next((tensor for tensor in tensors if tensor.ndim == ndim), None) for ndim in (3, 0))
    else:
        get = returned.get if isinstance(returned, Mapping) else lambda name: getattr(returned, name, None)
        logits, loss = (get(name) if isinstance(get(name), Tensor) else None for name in ("logits", "loss"))
    if logits is None:
        expected = "logits (batch, position, vocabulary) as a tensor, in a tuple, or as .logits of an object"
        raise UnusableModel(f"the model returned a {type(returned).__name__}; expected: {expected}")
    if logits.shape[-1:] != (vocab_size,):
        returned = f"the model returned logits of shape {tuple(logits.shape)}, and vocab_size is {vocab_size}"
        raise UnusableModel(f"{returned}: {SET_VOCABULARY}")
    return logits, loss


def loss_of(logits: Tensor, loss: Tensor | None, targets: Tensor) -> Tensor:
    """The loss that the model computed, or the cross entropy of its logits. Raises UnusableModel if there is neither a
    loss nor logits at every position."""
    if loss is not None:
        return loss
    if logits.shape[:-1] != targets.shape:
        shape, tokens = tuple(logits.shape), tuple(targets.shape)
        returned = f"the model returned logits of shape {shape} for tokens of shape {tokens}"
        raise UnusableModel(f"{returned} and no loss: a training step needs logits at every position, or a loss")
    return cross_entropy(logits, targets)


def _shorten(error: BaseException) -> str:
    """An error in one line, with the file and line that raised it."""
    *_, last = extract_tb(error.__traceback__)
    place = f" ({Path(last.filename).name}, line {last.lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ") + place
