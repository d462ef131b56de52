"""What a model returns: logits, and the loss where it computes that itself."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from cs336_model.model.functional import cross_entropy
from cs336_model.program.named import UnusableModel
from cs336_model.program.spec import RunSpec

EXPECTED = "expected: logits (batch, position, vocabulary) as a tensor, in a tuple, or as .logits of an object"


@dataclass(frozen=True)
class Output:
    """Logits (batch, position, vocabulary), and the loss that the model computed itself, if it did."""

    logits: Tensor | None
    loss: Tensor | None = None


def asking_for_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The keywords with which this model computes its loss; none where it cannot. `targets` are the tokens that follow,
    `labels` the tokens themselves, which the model shifts, as Hugging Face's do."""
    try:
        known = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # a forward without a signature in Python
        return {}
    return next(({name: given} for name, given in (("targets", targets), ("labels", inputs)) if name in known), {})


def read_output(returned: Any, spec: RunSpec) -> Output:
    """Logits and loss in what a model returned. UnusableModel says what it returned where there are none, or not as
    many as tokens."""
    output = Output(returned) if isinstance(returned, Tensor) else _found_in(returned)
    if output.logits is None:
        raise UnusableModel(f"the model returned {_in_words(returned)}; {EXPECTED}")
    if output.logits.shape[-1:] != (spec.vocab_size,):
        raise UnusableModel(
            f"the model returned logits of shape {tuple(output.logits.shape)}, and vocab_size is {spec.vocab_size}:"
            " give the constructor vocab_size under program.arguments, or set vocab_size in config.yaml"
        )
    return output


def loss_of(output: Output, targets: Tensor) -> Tensor:
    """The loss that the model computed, else the cross entropy of its logits."""
    if output.loss is not None:
        return output.loss
    if output.logits.shape[:-1] != targets.shape:
        raise UnusableModel(
            f"the model returned logits of shape {tuple(output.logits.shape)} for tokens of shape"
            f" {tuple(targets.shape)} and no loss: a training step needs logits at every position, or a loss"
        )
    return cross_entropy(output.logits, targets)


def _found_in(returned: Any) -> Output:
    """Of a tuple the first tensor of three dimensions and the first of none; of an object or mapping those so named."""
    if isinstance(returned, (tuple, list)) and not hasattr(returned, "logits"):
        tensors = [one for one in returned if isinstance(one, Tensor) and one.is_floating_point()]
        return Output(*(next((one for one in tensors if one.ndim == dimensions), None) for dimensions in (3, 0)))
    named = returned.get if isinstance(returned, Mapping) else lambda name: getattr(returned, name, None)
    logits, loss = (named(name) if isinstance(named(name), Tensor) else None for name in ("logits", "loss"))
    return Output(logits, loss)


def _in_words(returned: Any) -> str:
    if isinstance(returned, (tuple, list)):
        return f"a {type(returned).__name__} of {', '.join(map(_one, returned)) or 'nothing'}"
    return _one(returned)


def _one(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return "None" if value is None else f"a {type(value).__name__}"
