"""Which of a run's processes this one is, and the group in which they communicate."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from cs336_model.program.device import synchronize
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.parallel.launch import RANK, STORE, WORLD_SIZE

Made = TypeVar("Made")
NO_LIMIT = timedelta(days=7)  # a hang ends at the run's own time limit, which says where each process stands


@dataclass(frozen=True)
class Rank:
    """The number of this process among `count`, from 0."""

    number: int
    count: int


def this_rank() -> Rank:
    """What the launcher told this process; the only one where nothing did."""
    return Rank(int(os.environ.get(RANK, 0)), int(os.environ.get(WORLD_SIZE, 1)))


def join_group(device: torch.device) -> None:
    """From now on all processes of the run can communicate: by NCCL between GPUs, by Gloo between processors. Nothing
    where this process is alone. The context of a GPU has to be open (`open_context`)."""
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


def leave_group() -> None:
    """Frees what communication takes, once; nothing where there is no group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def wait_for_all(device: torch.device) -> None:
    """Returns when every process of the run has come here, its device idle; at once where this one is alone."""
    if this_rank().count > 1:
        dist.barrier()
        synchronize(device)


def mean_over_ranks(losses: Sequence[Tensor]) -> list[Tensor]:
    """The loss of the whole batch in every step, from that of this process's part of it."""
    if this_rank().count == 1:
        return list(losses)
    together = torch.stack(list(losses)).float()
    dist.all_reduce(together)
    return list(together / this_rank().count)


def of_all_ranks(numbers: Sequence[float], device: torch.device) -> Tensor:
    """These numbers of every rank: fp64 (rank, number), on the host."""
    own = torch.tensor(numbers, dtype=torch.float64, device=device)
    if this_rank().count == 1:
        return own.unsqueeze(0).cpu()
    rows = [torch.empty_like(own) for _ in range(this_rank().count)]
    dist.all_gather(rows, own)
    return torch.stack(rows).cpu()


def fitting_on_all_ranks(attempt: Callable[[], Made], device: torch.device) -> Made | None:
    """What `attempt` returns where it fits into the memory of every rank; None on all of them where one runs out. It
    must communicate with nobody: a rank that runs out would leave the others waiting."""
    try:
        made = attempt()
    except OutOfMemoryError:
        made = None
    return made if of_all_ranks([made is not None], device).all() else None
