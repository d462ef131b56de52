"""Reductions of the gradients of all ranks to their mean, as in the course: from one all-reduce per parameter to DDP.

Each has three methods. `wrap` returns the model that a step calls. `finish` ends the reduction after loss.backward();
its argument is the run's optimizer, if there is one. `paused` is a context without communication, for runs that can
leave it out (values.reduces_only_gradients).
"""

import warnings
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn.parallel import DistributedDataParallel

from cs336_model import ranges
from cs336_model.program.parallel.ranks import this_rank
from cs336_model.ranges import in_range, span


class NoReduction:
    """For a run of one process: gradients stay as they are. It is also the base class of all reductions."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def finish(self, optimizer: Any = None) -> None:
        return

    def paused(self) -> AbstractContextManager:
        return nullcontext()


class AfterBackward(NoReduction):
    """All-reduces after the backward pass: of every gradient, or with `flat` of all gradients as one tensor."""

    def __init__(self, flat: bool) -> None:
        self.flat, self.is_on = flat, True

    def wrap(self, model: nn.Module) -> nn.Module:
        self.parameters = list(model.parameters())
        return model

    def finish(self, optimizer: Any = None) -> None:
        if not self.is_on:
            return
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not self.flat:
            for gradient in gradients:
                reduce_to_mean(gradient)
        elif gradients:
            with span(ranges.ALL_REDUCE_BUFFERS):
                flat_gradient = _flatten_dense_tensors(gradients)
            reduce_to_mean(flat_gradient)
            with span(ranges.ALL_REDUCE_BUFFERS):
                means = _unflatten_dense_tensors(flat_gradient, gradients)
                for gradient, mean in zip(gradients, means, strict=True):
                    gradient.copy_(mean)

    @contextmanager
    def paused(self):
        self.is_on = False
        try:
            yield
        finally:
            self.is_on = True


class Overlapped(AfterBackward):
    """All-reduces every gradient as soon as it is ready, while the backward pass continues."""

    def __init__(self) -> None:
        super().__init__(flat=False)
        self.pending: list[dist.Work] = []

    def wrap(self, model: nn.Module) -> nn.Module:
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._begin)
        return model

    def finish(self, optimizer: Any = None) -> None:
        if self.pending:
            with span(ranges.ALL_REDUCE_WAIT):
                for work in self.pending:
                    work.wait()
            self.pending.clear()

    def _begin(self, parameter: Tensor) -> None:
        if self.is_on:
            self.pending.append(reduce_to_mean(parameter.grad, asynchronous=True))


class Buckets(NoReduction):
    """PyTorch's DistributedDataParallel, with buckets of `bucket_mb`."""

    def __init__(self, bucket_mb: int) -> None:
        self.bucket_mb = bucket_mb

    def wrap(self, model: nn.Module) -> nn.Module:
        # PyTorch 2.13 warns that the option broadcast_buffers is renamed
        ignore_warnings = warnings.catch_warnings(category=FutureWarning, action="ignore")
        with ignore_warnings, span(ranges.ALL_REDUCE_BUFFERS):
            # the model's buffers are constants (angles, a mask), which need not be sent again in every step
            self.model = DistributedDataParallel(model, bucket_cap_mb=self.bucket_mb, broadcast_buffers=False)
        # in its second step, DDP makes its buckets here, in the order in which the first step used the parameters
        self.model._pre_forward = in_range(ranges.ALL_REDUCE_BUFFERS, self.model._pre_forward)
        if ranges.are_recorded():  # a hook in Python takes time, so timed runs have none
            self.model.register_comm_hook(None, _marked_all_reduce)
        return self.model

    def paused(self) -> AbstractContextManager:
        return self.model.no_sync()


def reduce_to_mean(tensor: Tensor, asynchronous: bool = False) -> dist.Work | None:
    """Starts to reduce the tensor to its mean over all ranks, in place. With `asynchronous`, returns the work to wait
    for; otherwise later work on the device waits. Gloo has no mean, so each rank divides its tensor before the sum."""
    if dist.get_backend() == dist.Backend.NCCL:
        return dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=asynchronous)
    tensor.div_(this_rank().count)
    return dist.all_reduce(tensor, async_op=asynchronous)


def _marked_all_reduce(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DistributedDataParallel's reduction of a bucket, inside a range."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    with span(ranges.bucket_range_name(bucket.index())):
        return allreduce_hook(dist.group.WORLD, bucket)
