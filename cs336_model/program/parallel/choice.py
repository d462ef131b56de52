"""How the processes of a run share its work: the reduction and the optimizer that its dimensions name."""

from collections.abc import Iterable
from typing import Protocol

from torch import nn

from cs336_model import ranges
from cs336_model.model.optimizer import AdamW
from cs336_model.program.parallel.reduction import AfterBackward, Buckets, NoReduction, Overlapped
from cs336_model.program.parallel.sharding import FullySharded, zero_redundancy
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants import values

# by value of the dimension `parallel`; those of values.BUCKET_MB are in reduction_of
REDUCTIONS = {
    values.NOT_PARALLEL: NoReduction,
    values.NAIVE: lambda: AfterBackward(flat=False),
    values.FLAT: lambda: AfterBackward(flat=True),
    values.OVERLAPPED: Overlapped,
    values.FSDP: FullySharded,
}


class Optimizer(Protocol):
    """What a step needs of an optimizer."""

    def step(self) -> None: ...


def reduction_of(spec: RunSpec) -> NoReduction:
    """The reduction of a run's gradients, by its dimension `parallel`."""
    parallel = spec.dimensions["parallel"]
    return Buckets(values.BUCKET_MB[parallel]) if parallel in values.BUCKET_MB else REDUCTIONS[parallel]()


def optimizer_of(spec: RunSpec, parameters: Iterable[nn.Parameter]) -> Optimizer | None:
    """The optimizer of a run, by its dimension `optimizer`; None in a mode without one."""
    if ranges.OPTIMIZER not in spec.phases:
        return None
    return zero_redundancy(parameters) if spec.dimensions["optimizer"] == values.ZERO1 else AdamW(parameters)


def import_distributed(spec: RunSpec) -> None:
    """Imports what PyTorch would import when it distributes a model, above all torch._dynamo: 800 modules, which take
    seconds. Call it before the process has its GPUs; it does not use CUDA."""
    parallel, optimizer = spec.dimensions["parallel"], spec.dimensions["optimizer"]
    if parallel in values.BUCKET_MB:
        import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
    if parallel == values.FSDP:
        import torch.distributed.fsdp
    if optimizer == values.ZERO1:
        import torch.distributed.optim
    if parallel in (*values.BUCKET_MB, values.FSDP) or optimizer == values.ZERO1:
        import torch._dynamo  # noqa: F401
