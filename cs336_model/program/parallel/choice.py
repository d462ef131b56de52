"""How the processes of a run share its work: the reduction and the optimizer that its dimensions name."""

from collections.abc import Iterable
from typing import Protocol

from torch import nn

from cs336_model import ranges
from cs336_model.model.optimizer import AdamW
from cs336_model.program.adapters.distributed import AdaptedReduction, adapted_optimizer
from cs336_model.program.parallel.reduction import AfterBackward, Buckets, NoReduction, Overlapped
from cs336_model.program.parallel.sharding import FullySharded, zero_redundancy
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.values import (
    BUCKET_MB,
    FLAT,
    FSDP,
    NAIVE,
    NOT_PARALLEL,
    OVERLAPPED,
    OWN_DDP,
    OWN_FSDP,
    OWN_SHARDED,
    ZERO1,
)

REDUCTIONS = {
    NOT_PARALLEL: NoReduction,
    NAIVE: lambda: AfterBackward(flat=False),
    FLAT: lambda: AfterBackward(flat=True),
    OVERLAPPED: Overlapped,
    FSDP: FullySharded,
}


class Optimizer(Protocol):
    """What a step calls."""

    def step(self) -> None: ...


def reduction_of(spec: RunSpec) -> NoReduction:
    """The reduction of a run's gradients, by its dimension `parallel`."""
    parallel = spec.dimensions["parallel"]
    if parallel in (OWN_DDP, OWN_FSDP):
        return AdaptedReduction(parallel, spec.adapters, spec.dimensions["precision"])
    return Buckets(BUCKET_MB[parallel]) if parallel in BUCKET_MB else REDUCTIONS[parallel]()


def optimizer_of(spec: RunSpec, parameters: Iterable[nn.Parameter]) -> Optimizer | None:
    """The optimizer of a run, by its dimension `optimizer`; None in a mode without one."""
    if ranges.OPTIMIZER not in spec.phases:
        return None
    if spec.dimensions["optimizer"] == OWN_SHARDED:
        return adapted_optimizer(parameters, spec.adapters)
    return zero_redundancy(parameters) if spec.dimensions["optimizer"] == ZERO1 else AdamW(parameters)


def import_ahead(spec: RunSpec) -> None:
    """Imports what PyTorch imports when it distributes a model: torch._dynamo, 800 modules, which take seconds. To be
    called before the process has its GPUs. Does not use CUDA."""
    parallel = spec.dimensions["parallel"]
    if parallel in BUCKET_MB:
        import torch._dynamo
        import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
    if parallel == FSDP:
        import torch._dynamo
        import torch.distributed.fsdp
    if spec.dimensions["optimizer"] == ZERO1:
        import torch._dynamo
        import torch.distributed.optim
    if parallel in (OWN_DDP, OWN_FSDP) or spec.dimensions["optimizer"] == OWN_SHARDED:
        import torch._dynamo  # noqa: F401
