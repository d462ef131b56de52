"""How far a variant's first step is from an eager fp64 run of the same weights and tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cs336_model import ranges
from cs336_model.arithmetic.own_model import shape_of
from cs336_model.model.functional import cross_entropy
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.steps import Subject
from cs336_model.program.subject import build_model

TOO_LARGE = "an fp64 run of this size does not fit into memory"
NOT_WANTED = "the comparison with fp64 is switched off (timing: {accuracy: false})"
NOT_OURS = "the model is not this package's: whether it computes in fp64 is not known"

ON_SEVERAL_GPUS = "the batch is shared by several GPUs, and an fp64 run is of one"


@dataclass(frozen=True)
class Outcome:
    """What one pass gives: the loss, the logits (batch, position, vocab) and, after a backward pass, the gradients'
    norm; on the device."""

    loss: Tensor
    logits: Tensor
    gradient_norm: Tensor | None


def accuracy(subject: Subject, wanted: bool = True) -> dict[str, float | str | None]:
    """Relative errors of the subject's loss, logits (in the Euclidean norm) and norm of the gradients, with the weights
    that its seed gives; `reason` says why there are none. The subject cannot be used afterwards: its memory is needed.
    """
    nothing = dict.fromkeys(("reason", "loss_error", "logits_error", "gradient_norm_error"))
    if not wanted:
        return nothing | {"reason": NOT_WANTED}
    if subject.spec.dimensions["gpus"] > 1:
        return nothing | {"reason": ON_SEVERAL_GPUS}
    if shape_of(vars(subject.spec)) is None:
        return nothing | {"reason": NOT_OURS}
    try:
        reference = build_model(subject.spec, subject.device)
        found = outcome_of_variant(subject, reference)
        expected = outcome(reference.double(), subject)
    except OutOfMemoryError:
        return nothing | {"reason": TOO_LARGE}
    return nothing | {
        f"{name}_error": relative_error(value, getattr(expected, name))
        for name, value in vars(found).items()
        if value is not None
    }


def outcome_of_variant(subject: Subject, initial: nn.Module) -> Outcome:
    """The first step's outcome; the subject's weights, gradients and optimizer are given up."""
    subject.optimizer = None
    with torch.no_grad():
        for parameter, first in zip(subject.parameters, initial.parameters(), strict=True):
            parameter.copy_(first)
    with subject.autocast():
        found = outcome(subject.model, subject)
    for parameter in subject.parameters:
        parameter.grad, parameter.data = None, parameter.data.new_empty(0)
    return found


def outcome(model: nn.Module, subject: Subject) -> Outcome:
    """One pass over the subject's batch, backward too where its mode has that."""
    backward, parameters = ranges.BACKWARD in subject.spec.phases, list(model.parameters())
    for parameter in parameters:
        parameter.grad = None
    with torch.set_grad_enabled(backward):
        logits = model(subject.inputs)
        loss = cross_entropy(logits, subject.targets)
    if not backward:
        return Outcome(loss, logits, None)
    loss.backward()
    norms = [torch.linalg.vector_norm(one.grad, dtype=torch.float64) for one in parameters if one.grad is not None]
    return Outcome(loss.detach(), logits.detach(), torch.linalg.vector_norm(torch.stack(norms)))


def relative_error(found: Tensor, expected: Tensor) -> float:
    """|found - expected| / |expected|, in fp64."""
    difference = torch.linalg.vector_norm(found.double() - expected.double())
    return float(difference / torch.linalg.vector_norm(expected.double()))
