"""Parameters and optimizer state that the processes of a run divide: by PyTorch's FSDP2 and ZeroRedundancyOptimizer."""

import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from cs336_model import ranges
from cs336_model.model.optimizer import AdamW
from cs336_model.program.parallel.ranks import this_rank
from cs336_model.program.parallel.reduction import NoReduction

# methods of torch's FSDPParamGroup that communicate or allocate buffers for it, and their ranges
RANGES_OF_FSDP = {
    "unshard": ranges.ALL_GATHER,
    "wait_for_unshard": ranges.ALL_GATHER_WAIT,
    "post_backward": ranges.REDUCE_SCATTER,
}


class FullySharded(NoReduction):  # FSDP2's hooks reduce the gradients, so `finish` has nothing to do
    """PyTorch's FSDP2: every process has a part of each parameter, and gathers the parameters of a layer when the layer
    is computed. Parameters are gathered, and gradients reduced, in the data type of the parameters."""

    def wrap(self, model: nn.Module) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mark_fsdp()
        mesh = init_device_mesh(next(model.parameters()).device.type, (this_rank().count,))
        for layer in layers_of(model):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """The items of every outermost ModuleList."""
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else layers_of(child)


@functools.cache
def mark_fsdp() -> None:
    """Makes FSDP2 open ranges around its communication, from now on: nsys would not show what a kernel is for."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    for method, name in RANGES_OF_FSDP.items():
        setattr(FSDPParamGroup, method, ranges.in_range(name, getattr(FSDPParamGroup, method)))


class GroupedAdamW(torch.optim.Optimizer):
    """AdamW as a class of PyTorch's optimizers: sharded optimizers make one inside them. They give it groups of
    parameters, and may add groups later."""

    def __init__(self, parameters: Iterable[Any], **settings: Any) -> None:
        self.group_optimizers: list[AdamW] = []
        super().__init__(parameters, settings)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        # super() has completed the group with the defaults
        settings = {key: value for key, value in self.param_groups[-1].items() if key != "params"}
        adamw = AdamW(self.param_groups[-1]["params"], **settings)
        moments = zip(adamw.parameters, adamw.first_moments, adamw.second_moments, strict=True)
        for parameter, first, second in moments:
            self.state[parameter] = {"first": first, "second": second}
        self.group_optimizers.append(adamw)

    def step(self, closure: None = None) -> None:
        for adamw in self.group_optimizers:
            adamw.step()


# AdamW's defaults, in which a student's sharded optimizer and its reference agree (cs336_model.program.adapters)
ADAMW_SETTINGS = {
    name: parameter.default
    for name, parameter in inspect.signature(AdamW).parameters.items()
    if parameter.default is not parameter.empty
}


def zero_redundancy(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's ZeroRedundancyOptimizer around AdamW."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, optimizer_class=GroupedAdamW)


def optimizer_state(optimizer: Any) -> list[Tensor]:
    """The state tensors that this process keeps for its optimizer, and for optimizers inside it; [] without one."""
    if optimizer is None:
        return []
    if isinstance(optimizer, AdamW):
        return [*optimizer.first_moments, *optimizer.second_moments]
    inner = [value for value in vars(optimizer).values() if isinstance(value, torch.optim.Optimizer)]
    states = [state for owner in (optimizer, *inner) for state in owner.state.values()]
    tensors = [value for state in states for value in state.values() if isinstance(value, Tensor)]
    return list({id(tensor): tensor for tensor in tensors}.values())  # each once
