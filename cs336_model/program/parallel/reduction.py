"""Reductions of the gradients of all ranks to their mean: one all-reduce per parameter, PyTorch's DDP, and its FSDP.

Each has three methods. `wrap` returns the model that a step calls. `finish` ends the reduction after loss.backward().
`paused` is a context without communication, for runs that can leave it out (values.reduces_only_gradients).
"""

import functools
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cs336_model import ranges
from cs336_model.program.parallel.ranks import this_rank
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants import values
from cs336_model.ranges import in_range, span


class NoReduction:
    """For a run of one process: gradients stay as they are. It is also the base class of all reductions."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def finish(self) -> None:
        return

    def paused(self) -> AbstractContextManager:
        return nullcontext()


class AfterBackward(NoReduction):
    """One all-reduce per gradient, after the backward pass."""

    def wrap(self, model: nn.Module) -> nn.Module:
        self.parameters, self.is_on = list(model.parameters()), True
        return model

    def finish(self) -> None:
        if self.is_on:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    reduce_to_mean(parameter.grad)

    @contextmanager
    def paused(self):
        self.is_on = False
        try:
            yield
        finally:
            self.is_on = True


def reduce_to_mean(tensor: Tensor) -> None:
    """Reduces the tensor to its mean over all ranks, in place; later work on the device waits for it. Gloo has no mean,
    so each rank divides its tensor before the sum."""
    if dist.get_backend() == dist.Backend.NCCL:
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    else:
        dist.all_reduce(tensor.div_(this_rank().count))


class Buckets(NoReduction):
    """PyTorch's DistributedDataParallel, with its buckets of 25 MB."""

    def wrap(self, model: nn.Module) -> nn.Module:
        # PyTorch 2.13 warns that the option broadcast_buffers is renamed
        ignore_warnings = warnings.catch_warnings(category=FutureWarning, action="ignore")
        with ignore_warnings, span(ranges.ALL_REDUCE_BUFFERS):
            # the model's buffers are constants (angles, a mask), which need not be sent again in every step
            self.model = DistributedDataParallel(model, broadcast_buffers=False)
        # in its second step, DDP makes its buckets here, in the order in which the first step used the parameters
        self.model._pre_forward = in_range(ranges.ALL_REDUCE_BUFFERS, self.model._pre_forward)
        if ranges.are_recorded():  # a hook in Python takes time, so timed runs have none
            self.model.register_comm_hook(None, _marked_all_reduce)
        return self.model

    def paused(self) -> AbstractContextManager:
        return self.model.no_sync()


def _marked_all_reduce(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DistributedDataParallel's reduction of a bucket, inside a range."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    with span(ranges.bucket_range_name(bucket.index())):
        return allreduce_hook(dist.group.WORLD, bucket)


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

    # methods that communicate or allocate buffers for it
    ranges_by_method = {
        "unshard": ranges.ALL_GATHER,
        "wait_for_unshard": ranges.ALL_GATHER_WAIT,
        "post_backward": ranges.REDUCE_SCATTER,
    }
    for method, name in ranges_by_method.items():
        setattr(FSDPParamGroup, method, ranges.in_range(name, getattr(FSDPParamGroup, method)))


REDUCTIONS = {  # by value of the dimension `parallel`
    values.NOT_PARALLEL: NoReduction,
    values.NAIVE: AfterBackward,
    values.DDP: Buckets,
    values.FSDP: FullySharded,
}


def import_late_modules(spec: RunSpec) -> None:
    """Imports what PyTorch would import when it distributes a model or makes an optimizer, above all torch._dynamo: 800
    modules, which take seconds. Call it before the process has its GPUs; it does not use CUDA."""
    parallel = spec.dimensions["parallel"]
    if parallel == values.DDP:
        import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
    if parallel == values.FSDP:
        import torch.distributed.fsdp
    if parallel in (values.DDP, values.FSDP) or spec.dimensions["optimizer"] == values.FUSED:
        import torch._dynamo  # noqa: F401
