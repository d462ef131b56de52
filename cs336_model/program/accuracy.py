"""How far a variant's first step is from an eager fp64 run of the same weights and tokens.

On several GPUs every rank computes the whole batch in fp64, one rank's part after the other: nothing is reduced there,
so that a wrong reduction is not in both. The memory is that of one part.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from cs336_model import ranges
from cs336_model.arithmetic.own_model import sequences_per_gpu, shape_of
from cs336_model.model.functional import cross_entropy
from cs336_model.program.parallel.ranks import fitting_on_all_ranks, of_all_ranks, this_rank
from cs336_model.program.steps import Subject
from cs336_model.program.subject import build_model, inputs_and_targets, whole_batch

TOO_LARGE = "an fp64 run of this size does not fit into memory"
NOT_WANTED = "the comparison with fp64 is switched off (timing: {accuracy: false})"
NOT_OURS = "the model is not this package's: whether it computes in fp64 is not known"


@dataclass(frozen=True)
class Outcome:
    """What a first step gives, on the device: a loss, the logits of this rank's part of the batch (batch, position,
    vocab) and, after a backward pass, the norm of the gradients of the whole batch."""

    loss: Tensor
    logits: Tensor
    gradient_norm: Tensor | None


def accuracy(subject: Subject, wanted: bool = True) -> dict[str, float | str | None]:
    """Relative errors of the loss and the logits (in the Euclidean norm) of the whole batch, and of the norm of the
    gradients, the largest of all ranks, with the weights that the subject's seed gives; `reason` says why there are
    none. All ranks get the same. The subject cannot be used afterwards: its memory is needed."""
    nothing = dict.fromkeys(("reason", "loss_error", "logits_error", "gradient_norm_error"))
    if not wanted:
        return nothing | {"reason": NOT_WANTED}
    if shape_of(vars(subject.spec)) is None:
        return nothing | {"reason": NOT_OURS}
    found, expected = outcome_of_variant(subject), None
    if found:
        subject.give_up()
        expected = fitting_on_all_ranks(partial(outcome_in_fp64, subject), subject.device)
    return nothing | (errors(found, expected, subject.device) if expected else {"reason": TOO_LARGE})


def outcome_of_variant(subject: Subject) -> Outcome | None:
    """The outcome of the subject's first step, its loss that of this rank's part of the batch; None where a rank runs
    out of memory before it. Weights and gradients of later steps are given up."""
    if not fitting_on_all_ranks(partial(start_anew, subject), subject.device):
        return None
    step = partial(first_step, subject)
    # Where ranks communicate in it none may turn back alone; it takes no more memory than the steps that were measured.
    return step() if this_rank().count > 1 else fitting_on_all_ranks(step, subject.device)


def start_anew(subject: Subject) -> bool:
    """Gives the subject the weights of its seed again, which only an optimizer changes; True. It and all gradients are
    given up."""
    trained, subject.optimizer = subject.optimizer is not None, None
    for parameter in subject.parameters:
        parameter.grad = None
    if not trained:
        return True
    with torch.no_grad():
        initial = build_model(subject.spec, subject.device).parameters()
        for parameter, first in zip(subject.parameters, initial, strict=True):
            parameter.copy_(first)
    return True


def first_step(subject: Subject) -> Outcome:
    """One pass over this rank's part of the batch as a step takes it, its gradients reduced."""
    backward = has_backward(subject)
    loss, logits = one_pass(subject.model, subject.inputs, subject.targets, backward, under=subject.autocast())
    subject.reduction.finish()
    found = Outcome(loss, logits, norm_of_gradients(subject.parameters) if backward else None)
    for parameter in subject.parameters:
        parameter.grad, parameter.data = None, parameter.data.new_empty(0)
    return found


def outcome_in_fp64(subject: Subject) -> Outcome:
    """The same of an eager model in fp64, with the loss of the whole batch; communicates with nobody."""
    model, backward = build_model(subject.spec, subject.device).double(), has_backward(subject)
    parts = whole_batch(subject.spec, subject.device).split(sequences_per_gpu(subject.spec.dimensions))
    total, own = torch.zeros((), dtype=torch.float64, device=subject.device), None
    for number, part in enumerate(parts):
        loss, logits = one_pass(model, *inputs_and_targets(part), backward, share=len(parts))
        total += loss
        if number == this_rank().number:
            own = logits
    return Outcome(total, own, norm_of_gradients(model.parameters()) if backward else None)


def has_backward(subject: Subject) -> bool:
    """Whether the subject's mode has a backward pass."""
    return ranges.BACKWARD in subject.spec.phases


def one_pass(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    backward: bool,
    share: int = 1,
    under: AbstractContextManager | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss ÷ `share` and the logits of one pass, whose forward runs `under` a context. A backward pass adds to the
    gradients of the model."""
    with torch.set_grad_enabled(backward), under or nullcontext():
        logits = model(inputs)
        loss = cross_entropy(logits, targets) / share
    if backward:
        loss.backward()
    return loss.detach(), logits.detach()


def norm_of_gradients(parameters: Iterable[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together, in fp64."""
    norms = [torch.linalg.vector_norm(one.grad, dtype=torch.float64) for one in parameters if one.grad is not None]
    return torch.linalg.vector_norm(torch.stack(norms))


def errors(found: Outcome, expected: Outcome, device: torch.device) -> dict[str, float]:
    """The relative errors by their names, from the outcomes of all ranks."""
    has_norm = found.gradient_norm is not None
    off, size = distance(found.logits, expected.logits), distance(expected.logits)
    norm_off = relative(float(found.gradient_norm), float(expected.gradient_norm)) if has_norm else 0.0
    losses, offs, sizes, norms_off = of_all_ranks([float(found.loss), off, size, norm_off], device).T
    whole = {
        "loss_error": relative(float(losses.mean()), float(expected.loss)),
        "logits_error": float(torch.linalg.vector_norm(offs) / torch.linalg.vector_norm(sizes)),
    }
    return whole | ({"gradient_norm_error": float(norms_off.max())} if has_norm else {})


def distance(found: Tensor, expected: Tensor | float = 0.0) -> float:
    """|found - expected| in the Euclidean norm, in fp64."""
    return float(torch.linalg.vector_norm(found.double() - expected))


def relative(found: float, expected: float) -> float:
    """|found - expected| / |expected|."""
    return abs(found - expected) / abs(expected)
