"""Adapters for tests: right ones around PyTorch's classes, and one with each fault."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from cs336_model.program.parallel.sharding import FullySharded


def get_ddp(module: nn.Module) -> nn.Module:
    return DistributedDataParallel(module)


def after_backward(model: nn.Module, optimizer: object) -> None:
    """Nothing: PyTorch's classes have reduced already."""


class PlainDdp(nn.Module):
    """Data parallelism without any communication."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments):
        return self.module(*arguments)


def reduced(model: nn.Module, skip: int | None = None, divide: bool = True) -> None:
    for number, parameter in enumerate(model.parameters()):
        if number != skip:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size() if divide else 1


def sums(model, optimizer):
    """Forgets the mean."""
    reduced(model, divide=False)


def forgets_one(model, optimizer):
    reduced(model, skip=3)


def raises(model, optimizer):
    raise NotImplementedError("gradients are not reduced yet")


def hangs(model, optimizer):
    if dist.get_rank() == 0:
        time.sleep(10**6)
    reduced(model)


def get_fsdp(module: nn.Module, compute_dtype: torch.dtype | None = None) -> nn.Module:
    return FullySharded().wrap(module)


def gather_full_params(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.full_tensor() for name, parameter in model.named_parameters()}


def get_unsynchronised_fsdp(module: nn.Module, compute_dtype: torch.dtype | None = None) -> nn.Module:
    """Each process trains on its own part of the batch."""
    return PlainDdp(module)


def own_params(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


def get_sharded_optimizer(params, optimizer_cls, **kwargs) -> torch.optim.Optimizer:
    return ZeroRedundancyOptimizer(params, optimizer_class=optimizer_cls, **kwargs)


class WithoutBroadcast(torch.optim.Optimizer):
    """Updates the shard of this process, and sends it to none."""

    def __init__(self, params, optimizer_cls, **kwargs) -> None:
        params = list(params)
        super().__init__(params, kwargs)
        self.shard = optimizer_cls(params[dist.get_rank() :: dist.get_world_size()], **kwargs)

    def step(self, closure=None):
        self.shard.step()


CHECKED_PARAMETERS = 21  # of a model of two layers: more are not checked


def fails_late(*_) -> None:
    raise NotImplementedError("not for so many layers")


def fails(parameters) -> bool:
    """Whether code that fails does so here: in the second rank, at a size that is not checked."""
    return dist.get_rank() == 1 and len(list(parameters)) > CHECKED_PARAMETERS


def get_ddp_failing_in_backward(module: nn.Module) -> nn.Module:
    if fails(module.parameters()):
        next(module.parameters()).register_hook(fails_late)
    return PlainDdp(module)


def get_fsdp_failing_in_forward(module: nn.Module, compute_dtype: torch.dtype | None = None) -> nn.Module:
    if fails(module.parameters()):
        module.register_forward_pre_hook(fails_late)
    return get_fsdp(module)


def get_sharded_optimizer_failing_in_step(params, optimizer_cls, **kwargs) -> torch.optim.Optimizer:
    optimizer = get_sharded_optimizer(params := list(params), optimizer_cls, **kwargs)
    if fails(params):
        optimizer.step = fails_late
    return optimizer
