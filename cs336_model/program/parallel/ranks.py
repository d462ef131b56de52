"""The rank of this process in its run, and the group in which the ranks communicate."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from cs336_model import ranges
from cs336_model.program.device import synchronize
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.parallel.launch import RANK, STORE, WORLD_SIZE

Returned = TypeVar("Returned")
NO_LIMIT = timedelta(days=7)  # a hung run is killed at its own time limit, after each process prints its stacks


@dataclass(frozen=True)
class ProcessRank:
    """This process among those of its run."""

    number: int  # from 0
    count: int  # of processes


def this_rank() -> ProcessRank:
    """The rank by the launcher's variables; without them, the only process."""
    return ProcessRank(int(os.environ.get(RANK, 0)), int(os.environ.get(WORLD_SIZE, 1)))


def join_group(device: torch.device) -> None:
    """Connects all processes of the run: by NCCL between GPUs, by Gloo on CPUs. Nothing for a single process. The
    context of a GPU must be open (`open_context`)."""
    rank = this_rank()
    if rank.count == 1:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes are on one host
    on_gpu = device.type == "cuda"
    if not on_gpu:
        torch.set_num_threads(max(len(os.sched_getaffinity(0)) // rank.count, 1))  # the cores are shared
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{os.path.realpath(os.environ[STORE])}",
        rank=rank.number, world_size=rank.count, timeout=NO_LIMIT, device_id=device if on_gpu else None,
    )  # fmt: skip
    if ranges.are_recorded():
        mark_collectives()


# By function of torch.distributed: the name of its range, and the position and name of the tensor that holds all data
# that one rank communicates.
COLLECTIVES = {
    "all_reduce": (ranges.ALL_REDUCE, 0, "tensor"),
    "all_gather_into_tensor": (ranges.ALL_GATHER, 0, "output_tensor"),
    "all_gather_single": (ranges.ALL_GATHER, 0, "output_tensor"),  # the same since PyTorch 2.13
    "reduce_scatter_tensor": (ranges.REDUCE_SCATTER, 1, "input"),
    "reduce_scatter_single": (ranges.REDUCE_SCATTER, 1, "input"),
}


def mark_collectives() -> None:
    """Makes the functions of COLLECTIVES open ranges, whoever calls them, in this process from now on. The names of the
    ranges have the bytes, which nsys does not see."""
    for name, (operation, position, argument) in COLLECTIVES.items():
        if hasattr(dist, name):
            setattr(dist, name, _marked(getattr(dist, name), operation, position, argument))


def _marked(collective: Callable[..., Any], operation: str, position: int, argument: str) -> Callable[..., Any]:
    @functools.wraps(collective)
    def marked(*args: Any, **kwargs: Any) -> Any:
        tensor = kwargs[argument] if argument in kwargs else args[position]
        with ranges.span(ranges.collective_range_name(operation, tensor.nbytes)):
            return collective(*args, **kwargs)

    return marked


def leave_group() -> None:
    """Frees the resources of communication; nothing without a group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def wait_for_all(device: torch.device) -> None:
    """A barrier: returns when every process of the run is here and the device of this one is idle. A run of one process
    does not wait at all, not even for its device."""
    if this_rank().count > 1:
        dist.barrier()
        synchronize(device)


def mean_over_ranks(losses: Sequence[Tensor]) -> list[Tensor]:
    """The loss of the entire batch in every step, from the losses of this rank's part; every rank calls it."""
    if this_rank().count == 1:
        return list(losses)
    sums = torch.stack(list(losses)).float()
    dist.all_reduce(sums)
    return list(sums / this_rank().count)


def sum_over_ranks(number: Tensor) -> Tensor:
    """The sum over all ranks, in place."""
    dist.all_reduce(number)
    return number


def gather_numbers(numbers: Sequence[float], device: torch.device) -> Tensor:
    """The numbers of every rank: fp64 (rank, number), on the host."""
    values = torch.tensor(numbers, dtype=torch.float64, device=device)
    if this_rank().count == 1:
        return values.unsqueeze(0).cpu()
    rows = [torch.empty_like(values) for _ in range(this_rank().count)]
    dist.all_gather(rows, values)
    return torch.stack(rows).cpu()


def attempt_on_all_ranks(attempt: Callable[[], Returned], device: torch.device) -> Returned | None:
    """The result of `attempt` if no rank runs out of memory; None on all ranks if one does. The attempt must not
    communicate: a rank that runs out of memory would leave the others waiting."""
    try:
        returned = attempt()
    except OutOfMemoryError:
        returned = None
    return returned if gather_numbers([returned is not None], device).all() else None
