"""Parameters and forward FLOPs of a run: from the shapes for the model of this package, else counted by torch."""

import torch
from torch import nn

from cs336_model import ranges
from cs336_model.arithmetic.flops import forward_flops, parameter_count
from cs336_model.arithmetic.own_model import shape_of
from cs336_model.program.spec import RunSpec
from cs336_model.program.steps import Subject


def planned_parameters(spec: RunSpec) -> int | None:
    """Parameters before the model exists; None for other people's."""
    shape = shape_of(vars(spec))
    return parameter_count(shape) if shape else None


def planned_flops(spec: RunSpec) -> dict[str, int | None]:
    """{"forward": FLOPs of the matrix products, and each part}; {"forward": None} for other people's models."""
    shape = shape_of(vars(spec))
    return forward_flops(shape) if shape else {"forward": None}


def count_parameters(model: nn.Module) -> int:
    """Elements of all parameters, a shared one counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def counted_flops(subject: Subject) -> dict[str, int | None]:
    """{"forward": FLOPs of the matrix products of one forward pass as its steps take it, by torch's own counter}."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and only other people's models need it

    model, arguments = subject.model, subject.arguments(with_loss=ranges.LOSS in subject.spec.phases)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.forward(subject.inputs, **arguments)  # as it is written: of a compiled graph nothing would be counted
    return {"forward": counter.get_total_flops()}
