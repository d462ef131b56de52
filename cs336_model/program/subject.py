"""The measured model, built as a run specification declares it, and its batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cs336_model import ranges
from cs336_model.arguments import constructor_arguments
from cs336_model.arithmetic.flops import sequences_per_gpu
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.parallel.ranks import this_rank
from cs336_model.program.spec import RunSpec
from cs336_model.program.targets import UnusableModel, find_object, one_line_error, prepare_functions
from cs336_model.program.variants.effects import change_model


def build_model(spec: RunSpec, device: torch.device) -> nn.Module:
    """The spec's model, seeded, with weights made on the device: nothing is initialised on the CPU and copied. Without
    a backward pass it is in evaluation mode. Raises UnusableModel if it cannot be made or measured."""
    constructor = find_object(spec.constructor)
    config = find_object(spec.config) if spec.config else None
    prepare_functions(spec)
    arguments = constructor_arguments(vars(spec))
    torch.manual_seed(spec.seed)
    with torch.device(device):
        if config is None:
            model = _call(spec.constructor, constructor, **arguments)
        else:
            model = _call(spec.constructor, constructor, _call(spec.config, config, **arguments))
    _check_model(spec, model)
    return model.to(device).train(ranges.BACKWARD in spec.phases)


def build_variant(spec: RunSpec, device: torch.device) -> nn.Module:
    """The spec's model, changed as the dimensions of the run demand. Raises Unsupported if this machine refuses that,
    and UnusableModel."""
    model = build_model(spec, device)
    change_model(spec, model, device)
    return model


def make_batch(spec: RunSpec, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random tokens and the tokens that follow them, int64 (batch, position) each, made on the device from the seed.
    Each rank makes the entire batch and takes its part."""
    parts = whole_batch(spec, device).split(sequences_per_gpu(spec.dimensions))
    return inputs_and_targets(parts[this_rank().number])


def whole_batch(spec: RunSpec, device: torch.device) -> Tensor:
    """The sequences of all ranks, int64 (batch, context_length + 1): the last token is only a target."""
    generator = torch.Generator(device=device).manual_seed(spec.seed)
    shape = (spec.dimensions["batch_size"], spec.dimensions["context_length"] + 1)
    return torch.randint(spec.vocab_size, shape, generator=generator, device=device)


def inputs_and_targets(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The inputs of the model, and for each the token that follows it, from sequences with one token more."""
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters, a shared one counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _call(target: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a constructor or function of the user returns. Its exceptions become UnusableModel, with one line; only an
    OutOfMemoryError stays as it is."""
    try:
        return function(*args, **kwargs)
    except OutOfMemoryError:
        raise
    except Exception as error:  # whatever it raises
        names = ", ".join([*(type(value).__name__ for value in args), *kwargs]) or "no arguments"
        raise UnusableModel(
            f"{target}, called with {names}, raised {one_line_error(error)}; see program.arguments in config.yaml"
        ) from error


def _check_model(spec: RunSpec, model: object) -> None:
    """Raises UnusableModel unless this is a module with a parameter that can have a row for each token of the
    vocabulary."""
    if not isinstance(model, nn.Module):
        raise UnusableModel(f"{spec.constructor} returned {_kind(model)}, not a torch.nn.Module")
    largest = max((max(parameter.shape, default=0) for parameter in model.parameters()), default=0)
    if largest < spec.vocab_size:
        raise UnusableModel(
            f"{spec.constructor} made a model without a parameter for each of {spec.vocab_size} tokens (the largest"
            f" dimension is {largest}): give it vocab_size under program.arguments, or set vocab_size in config.yaml"
        )


def _kind(value: object) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
