"""How far a variant's first step is from an eager fp64 run of the same weights and tokens.

What the very first step of the process gives is kept on the host, between two steps, and compared when all is measured.
On several GPUs every rank computes the whole batch in fp64, one rank's part after the other: nothing is reduced there,
so that a wrong reduction is not in both. The memory is that of one part.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from cs336_model import ranges
from cs336_model.arithmetic.flops import sequences_per_gpu, shape_of
from cs336_model.model.functional import cross_entropy
from cs336_model.program.outputs import Output, loss_of
from cs336_model.program.parallel.ranks import fitting_on_all_ranks, of_all_ranks, this_rank
from cs336_model.program.steps import Subject
from cs336_model.program.subject import build_model, inputs_and_targets, whole_batch

TOO_LARGE = "an fp64 run of this size does not fit into memory"
NOT_WANTED = "the comparison with fp64 is switched off (timing: {accuracy: false})"
NOT_OURS = "the model is not this package's: whether it computes in fp64 is not known"


PART, LEAST_PART = 2**22, 2**14  # elements of a gradient that are made anew in fp64 at once


@dataclass(frozen=True)
class Outcome:
    """What a first step gives: the loss, None where the mode computes none, the logits of this rank's part of the batch
    (batch, position, vocab) and, after a backward pass, the norm of the gradients of the whole batch."""

    loss: Tensor | None
    logits: Tensor
    gradient_norm: Tensor | None


class Comparison:
    """The first step of a subject beside the same in fp64. To be made before that step."""

    def __init__(self, subject: Subject, wanted: bool = True) -> None:
        not_ours = None if shape_of(vars(subject.spec)) else NOT_OURS
        self.reason, self._first = not_ours if wanted else NOT_WANTED, None
        if self.reason is None:
            subject.after_first_step = self._keep

    def errors(self, subject: Subject) -> dict[str, float | str | None]:
        """Relative errors of the loss and the logits (in the Euclidean norm) of the whole batch, and of the norm of the
        gradients, the largest of all ranks, with the weights that the subject's seed gives; `reason` says why there are
        none. All ranks get the same. The subject cannot be used afterwards: its memory is needed."""
        nothing = dict.fromkeys(("reason", "loss_error", "logits_error", "gradient_norm_error"))
        if self.reason is not None:
            return nothing | {"reason": self.reason}
        subject.give_up()
        expected = fitting_on_all_ranks(partial(outcome_in_fp64, subject), subject.device)
        if expected is None:
            return nothing | {"reason": TOO_LARGE}
        return nothing | errors(on_device(self._first, subject), expected, subject.device)

    def _keep(self, subject: Subject, output: Output) -> None:
        loss = subject.losses[0] if subject.losses else None
        norm = norm_of_gradients(subject.parameters, fitting(subject.device)) if has_backward(subject) else None
        self._first = Outcome(loss, output.logits.detach().cpu(), norm)


def fitting(device: torch.device) -> int:
    """Elements of a gradient that may be made anew in fp64 behind a step, so that the most memory stays that of the
    step: half of what it took more than is taken now."""
    if device.type != "cuda":
        return PART
    room = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
    return min(max(room // 16, LEAST_PART), PART)


def on_device(first: Outcome, subject: Subject) -> Outcome:
    """A first step that was kept, its logits where they were made, with the loss of a mode that computes none."""
    logits, loss = first.logits.to(subject.device), first.loss
    if loss is None:
        with torch.no_grad(), subject.autocast():
            loss = loss_of(Output(logits), subject.targets)
    return replace(first, logits=logits, loss=loss)


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
    model: nn.Module, inputs: Tensor, targets: Tensor, backward: bool, share: int = 1
) -> tuple[Tensor, Tensor]:
    """The loss ÷ `share` and the logits of one pass. A backward pass adds to the gradients of the model."""
    with torch.set_grad_enabled(backward):
        logits = model(inputs)
        loss = cross_entropy(logits, targets) / share
    if backward:
        loss.backward()
    return loss.detach(), logits.detach()


def norm_of_gradients(parameters: Iterable[Tensor], most: int = PART) -> Tensor:
    """The Euclidean norm of all gradients together, in fp64, of which so many elements are made anew at once."""
    total = None
    for one in parameters:
        for part in () if one.grad is None else one.grad.detach().reshape(-1).split(most):
            square = torch.linalg.vector_norm(part, dtype=torch.float64).square()
            total = square if total is None else total.add_(square)
    return total.sqrt()


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
