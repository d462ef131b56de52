"""How far a variant's first step is from an eager fp64 run of the same weights and tokens.

After the very first step, its logits are copied to the host; they are compared after all measurements. On several GPUs
every rank computes the entire batch in fp64, one rank's part after the other, so that only one part needs memory. The
fp64 run does not communicate: if the measured step reduces gradients wrongly, the two runs differ.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from cs336_model import ranges
from cs336_model.arithmetic.flops import sequences_per_gpu, shape_of
from cs336_model.model.functional import cross_entropy
from cs336_model.model.optimizer import is_sharded, local_part
from cs336_model.program.outputs import Output, loss_of
from cs336_model.program.parallel.ranks import attempt_on_all_ranks, gather_numbers, sum_over_ranks, this_rank
from cs336_model.program.steps import Subject
from cs336_model.program.subject import build_model, inputs_and_targets, whole_batch

TOO_LARGE = "an fp64 run of this size does not fit into memory"
SWITCHED_OFF = "the comparison with fp64 is switched off (timing: {accuracy: false})"
NOT_OURS = "the model is not this package's: whether it computes in fp64 is not known"
MAX_ELEMENTS, MIN_ELEMENTS = 2**22, 2**14  # how many numbers of a gradient are converted to fp64 at once


@dataclass(frozen=True)
class FirstStepOutputs:
    """The outputs of a first step."""

    loss: Tensor | None  # of this rank's part of the batch (fp64: of the whole batch); None if the mode computes none
    logits: Tensor  # of this rank's part of the batch: (batch, position, vocab)
    gradient_norm: Tensor | None  # of the whole batch; None without a backward pass


class Comparison:
    """Compares the first step of a subject with the same step in fp64; make it before that step."""

    def __init__(self, subject: Subject, is_enabled: bool = True) -> None:
        self._outputs: FirstStepOutputs | None = None
        self._why_not: str | None = None  # why nothing is compared
        if not is_enabled:
            self._why_not = SWITCHED_OFF
        elif shape_of(vars(subject.spec)) is None:  # a custom model
            self._why_not = NOT_OURS
        else:
            subject.after_first_step = self._keep_outputs

    def errors(self, subject: Subject) -> dict[str, float | str | None]:
        """Relative errors of the loss and of the logits (in the Euclidean norm) of the whole batch; and of the norm of
        the gradients, the largest of all ranks. Or a `reason` why there are none. All ranks
        get the same. The subject cannot be used afterwards: its memory is needed."""
        nothing = dict.fromkeys(("reason", "loss_error", "logits_error", "gradient_norm_error"))
        if self._why_not is not None:
            return nothing | {"reason": self._why_not}
        subject.free_model()
        expected = attempt_on_all_ranks(partial(outputs_in_fp64, subject), subject.device)
        if expected is None:  # a rank ran out of memory
            return nothing | {"reason": TOO_LARGE}
        return nothing | relative_errors(with_loss(self._outputs, subject), expected, subject.device)

    def _keep_outputs(self, subject: Subject, output: Output) -> None:
        loss = subject.losses[0] if subject.losses else None
        norm = norm_of_gradients(subject.parameters, free_elements(subject.device)) if has_backward(subject) else None
        self._outputs = FirstStepOutputs(loss, output.logits.detach().cpu(), norm)


def free_elements(device: torch.device) -> int:
    """How many numbers of a gradient to convert to fp64 (8 bytes each) at once after a step. On a GPU, they take half
    of the memory that is left below the peak, so that the measured peak stays, but at least MIN_ELEMENTS and at most
    MAX_ELEMENTS are converted; on a CPU, MAX_ELEMENTS."""
    if device.type != "cuda":
        return MAX_ELEMENTS
    room_bytes = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
    return min(max(room_bytes // 2 // 8, MIN_ELEMENTS), MAX_ELEMENTS)


def with_loss(outputs: FirstStepOutputs, subject: Subject) -> FirstStepOutputs:
    """These outputs with logits on the device, and with the loss also in a mode that computes none."""
    logits, loss = outputs.logits.to(subject.device), outputs.loss
    if loss is None:
        with torch.no_grad(), subject.autocast():
            loss = loss_of(Output(logits), subject.targets)
    return replace(outputs, logits=logits, loss=loss)


def outputs_in_fp64(subject: Subject) -> FirstStepOutputs:
    """The outputs of an eager model in fp64, with the loss of the entire batch; without communication."""
    model, backward = build_model(subject.spec, subject.device).double(), has_backward(subject)
    parts = whole_batch(subject.spec, subject.device).split(sequences_per_gpu(subject.spec.dimensions))
    batch_loss, rank_logits = torch.zeros((), dtype=torch.float64, device=subject.device), None
    for rank, part in enumerate(parts):
        inputs, targets = inputs_and_targets(part)
        loss, logits = one_pass(model, inputs, targets, backward=backward, parts=len(parts))
        batch_loss += loss
        if rank == this_rank().number:
            rank_logits = logits
    return FirstStepOutputs(batch_loss, rank_logits, norm_of_gradients(model.parameters()) if backward else None)


def has_backward(subject: Subject) -> bool:
    """Whether the subject's mode has a backward pass."""
    return ranges.BACKWARD in subject.spec.phases


def one_pass(
    model: nn.Module, inputs: Tensor, targets: Tensor, backward: bool, parts: int = 1
) -> tuple[Tensor, Tensor]:
    """The loss ÷ `parts` and the logits of one pass. A backward pass adds to the gradients of the model."""
    with torch.set_grad_enabled(backward):
        logits = model(inputs)
        loss = cross_entropy(logits, targets) / parts
    if backward:
        loss.backward()
    return loss.detach(), logits.detach()


def norm_of_gradients(parameters: Iterable[Tensor], max_elements: int = MAX_ELEMENTS) -> Tensor:
    """The Euclidean norm of all gradients together, in fp64. If they are sharded, the parts of other processes are
    included. Converts at most `max_elements` at once."""
    total, gradients = None, [parameter.grad for parameter in parameters if parameter.grad is not None]
    for gradient in gradients:
        for part in local_part(gradient.detach()).reshape(-1).split(max_elements):
            square = torch.linalg.vector_norm(part, dtype=torch.float64).square()
            total = square if total is None else total.add_(square)
    return (sum_over_ranks(total) if any(map(is_sharded, gradients)) else total).sqrt()


def relative_errors(measured: FirstStepOutputs, expected: FirstStepOutputs, device: torch.device) -> dict[str, float]:
    """The relative errors by name, from the outputs of all ranks."""
    has_norm = measured.gradient_norm is not None
    error_norm, logits_norm = distance(measured.logits, expected.logits), distance(expected.logits)
    # without a norm, 0 fills the column, and is not returned
    norm_error = relative_error(float(measured.gradient_norm), float(expected.gradient_norm)) if has_norm else 0.0
    rank_numbers = gather_numbers([float(measured.loss), error_norm, logits_norm, norm_error], device)
    losses, error_norms, logits_norms, norm_errors = rank_numbers.T
    batch_errors = {
        "loss_error": relative_error(float(losses.mean()), float(expected.loss)),
        "logits_error": float(torch.linalg.vector_norm(error_norms) / torch.linalg.vector_norm(logits_norms)),
    }
    return batch_errors | ({"gradient_norm_error": float(norm_errors.max())} if has_norm else {})


def distance(measured: Tensor, expected: Tensor | float = 0.0) -> float:
    """The Euclidean norm of measured - expected, in fp64."""
    return float(torch.linalg.vector_norm(measured.double() - expected))


def relative_error(measured: float, expected: float) -> float:
    """|measured - expected| / |expected|."""
    return abs(measured - expected) / abs(expected)
