"""The output of a model: logits, and the loss if the model computes it."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from cs336_model.model.functional import cross_entropy
from cs336_model.program.spec import RunSpec
from cs336_model.program.targets import UnusableModel

EXPECTED_OUTPUT = "expected: logits (batch, position, vocabulary) as a tensor, in a tuple, or as .logits of an object"


@dataclass(frozen=True)
class Output:
    """Logits (batch, position, vocabulary), and the loss if the model computed it."""

    logits: Tensor | None
    loss: Tensor | None = None


def loss_arguments(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The argument with which this model computes its loss; {} if it cannot. `targets` are the next tokens, `labels`
    the tokens themselves, which the model shifts, as Hugging Face's models do."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # a forward without a signature in Python
        return {}
    for name, tokens in (("targets", targets), ("labels", inputs)):
        if name in parameters:
            return {name: tokens}
    return {}


def read_output(returned: Any, spec: RunSpec) -> Output:
    """Logits and loss in what a model returned. Raises UnusableModel without logits, or if their number is not that of
    the tokens of the vocabulary."""
    output = Output(returned) if isinstance(returned, Tensor) else _output_in(returned)
    if output.logits is None:
        raise UnusableModel(f"the model returned {_described(returned)}; {EXPECTED_OUTPUT}")
    if output.logits.shape[-1:] != (spec.vocab_size,):
        raise UnusableModel(
            f"the model returned logits of shape {tuple(output.logits.shape)}, and vocab_size is {spec.vocab_size}:"
            " give the constructor vocab_size under program.arguments, or set vocab_size in config.yaml"
        )
    return output


def loss_of(output: Output, targets: Tensor) -> Tensor:
    """The loss that the model computed, or the cross entropy of its logits. Raises UnusableModel if there is neither a
    loss nor logits at every position."""
    if output.loss is not None:
        return output.loss
    if output.logits.shape[:-1] != targets.shape:
        raise UnusableModel(
            f"the model returned logits of shape {tuple(output.logits.shape)} for tokens of shape"
            f" {tuple(targets.shape)} and no loss: a training step needs logits at every position, or a loss"
        )
    return cross_entropy(output.logits, targets)


def _output_in(returned: Any) -> Output:
    """Of a tuple or list, the first floating-point tensor with three dimensions as logits and the first with none as
    loss; of an object or mapping, its `logits` and `loss`."""
    if isinstance(returned, (tuple, list)) and not hasattr(returned, "logits"):
        tensors = [value for value in returned if isinstance(value, Tensor) and value.is_floating_point()]
        logits, loss = (next((tensor for tensor in tensors if tensor.ndim == ndim), None) for ndim in (3, 0))
        return Output(logits, loss)
    get = returned.get if isinstance(returned, Mapping) else lambda name: getattr(returned, name, None)
    logits, loss = (get(name) if isinstance(get(name), Tensor) else None for name in ("logits", "loss"))
    return Output(logits, loss)


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {', '.join(map(_described, value)) or 'nothing'}"
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return "None" if value is None else f"a {type(value).__name__}"
