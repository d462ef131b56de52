"""One rank of a run on several GPUs: its group, its part of the batch, and how it reduces its gradients.

cs336_model/launch.py starts the ranks, and holds the locks. If a profiler sees ranges, `all-reduce, bytes = N` is
around each all-reduce; with DDP, it is inside `all-reduce, bucket = K`. With FSDP, `all-gather` and `reduce-scatter`
without bytes include the copies that a collective needs, and `wait for all-gather` is around the wait.
"""

import argparse
import functools
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cs336_model import benchmark, ranges
from cs336_model.device import Place, synchronize
from cs336_model.launch import POLL_S
from cs336_model.spec import Spec


class RankPlace(Place):
    """The GPU of this rank (on a CPU, its part of the cores) and its place among the ranks: from the making of this
    object, which waits until launch.py holds all GPUs, until `share`."""

    def __init__(self, spec: Spec, options: argparse.Namespace) -> None:
        self.rank, self.ranks = options.rank, spec.gpus
        self.meeting, self.folder, self.is_here = options.meeting, options.output.parent, True
        self.folder.joinpath("ready").touch()
        gpus = json.loads(self.wait_for("begin"))
        if gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        self.device = torch.device("cuda", self.rank) if gpus else torch.device("cpu")

    def open(self) -> None:
        """Opens the context of the GPU, and joins the group of all ranks: NCCL between GPUs, Gloo on a CPU."""
        super().open(threads=len(os.sched_getaffinity(0)) // self.ranks or 1)
        on_gpu = self.device.type == "cuda"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo", init_method=f"file://{self.meeting.resolve()}/store", rank=self.rank,
            world_size=self.ranks, device_id=self.device if on_gpu else None,
            timeout=timedelta(days=7),  # the run has a time limit of its own
        )  # fmt: skip
        if ranges.are_recorded():
            mark_collectives()

    def share(self) -> None:
        """Leaves the group and frees memory, the first time; from then on this process may import and export."""
        if self.is_here:
            self.is_here = False
            dist.destroy_process_group()
            self.free()
            self.folder.joinpath("freed").touch()
            self.wait_for("end")

    def wait_for(self, name: str) -> str:
        """What is in a file of the meeting, once it is there."""
        while not (path := self.meeting / name).exists():
            time.sleep(POLL_S)
        return path.read_text()


class RankSubject(benchmark.Subject):
    """A subject whose steps compute a part of the batch, and reduce the gradients of all ranks to their mean."""

    communicates = True

    def take_part(self, tokens: Tensor) -> Tensor:
        """The part of a batch (sequences, context length) that this rank computes."""
        return tokens.chunk(dist.get_world_size())[dist.get_rank()]

    def wait_for_all(self) -> None:
        dist.barrier()
        synchronize(self.device)

    def read_losses(self) -> list[float]:
        """The losses of the entire batch; all ranks have the same."""
        losses = torch.stack(self.losses).float()
        dist.all_reduce(losses)
        return (losses / dist.get_world_size()).tolist()

    def time_without_communication(self) -> list[float]:
        """Seconds of half as many steps (rounded up) as were measured, in which each rank keeps its gradients. The
        ranks have different weights afterwards."""
        self.wait_for_all()
        self.communicates = self.model.require_backward_grad_sync = False  # the second is DistributedDataParallel's
        return self.run_steps("no_sync", (self.spec.measured_steps + 1) // 2)


class Naive(RankSubject):
    """One all-reduce per gradient, after the backward pass."""

    def reduce_gradients(self) -> None:
        for parameter in self.parameters if self.communicates else ():
            if parameter.grad is not None and dist.get_backend() == "nccl":
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            elif parameter.grad is not None:  # Gloo has no mean
                dist.all_reduce(parameter.grad.div_(dist.get_world_size()))


class Buckets(RankSubject):
    """PyTorch's DistributedDataParallel, with its buckets of 25 MB."""

    def wrap(self, model: nn.Module) -> nn.Module:
        # PyTorch 2.13 warns that the option broadcast_buffers is renamed
        ignored = warnings.catch_warnings(category=FutureWarning, action="ignore")
        with ignored, ranges.span("all-reduce buffers"):
            # buffers of the model are constants (angles, a mask), which need not be sent again in every step
            wrapped = DistributedDataParallel(model, broadcast_buffers=False)
        if ranges.are_recorded():  # a hook in Python takes time, so timed runs have none
            # in its second step, DDP makes its buckets here, in the order in which the first step used the parameters
            wrapped._pre_forward = ranges.in_range("all-reduce buffers", wrapped._pre_forward)
            wrapped.register_comm_hook(None, _reduce_in_range)
        return wrapped


def _reduce_in_range(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    with ranges.span(f"all-reduce, bucket = {bucket.index()}"):
        return allreduce_hook(dist.group.WORLD, bucket)


class Sharded(RankSubject):
    """PyTorch's fully_shard: every rank has a part of each parameter, and gathers the parameters of a layer when the
    layer is computed. Its hooks reduce the gradients, and no step can do without."""

    def wrap(self, model: nn.Module) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (dist.get_world_size(),))
        for layer in list_layers(model):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def time_without_communication(self) -> list[float]:
        """No seconds: a step cannot do without gathering the parameters."""
        return []


def list_layers(model: nn.Module) -> Iterator[nn.Module]:
    """The items of every outermost ModuleList."""
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else list_layers(child)


SUBJECTS = {"naive": Naive, "ddp": Buckets, "fsdp": Sharded}  # by value of the dimension `parallel`


def mark_collectives() -> None:
    """Makes collectives open ranges that name their bytes, which nsys does not see, and FSDP around what it does for
    them; whoever calls them, in this process from now on."""
    collectives = {
        "all_reduce": "all-reduce", "all_gather_into_tensor": "all-gather", "reduce_scatter_tensor": "reduce-scatter",
        "all_gather_single": "all-gather", "reduce_scatter_single": "reduce-scatter",  # the same since PyTorch 2.13
    }  # fmt: skip
    for name, operation in collectives.items():
        if hasattr(dist, name):
            setattr(dist, name, _mark(getattr(dist, name), operation))
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup as Group

    around = {"unshard": "all-gather", "wait_for_unshard": "wait for all-gather", "post_backward": "reduce-scatter"}
    for name, text in around.items():
        setattr(Group, name, ranges.in_range(text, getattr(Group, name)))


def _mark(collective: Callable[..., Any], operation: str) -> Callable[..., Any]:
    @functools.wraps(collective)
    def marked(*args: Any, **kwargs: Any) -> Any:
        # the largest tensor holds all data of one rank: what is gathered or scattered
        size = max(one.nbytes for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
        with ranges.span(f"{operation}, bytes = {size}"):
            return collective(*args, **kwargs)

    return marked
