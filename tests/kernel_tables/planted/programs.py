"""The loops: `python -m tests.kernel_tables.planted.programs FAULT` runs one under a profiler.

The loop without a fault keeps the GPU busy with bf16 matrix multiplies and fused attention, has a fused optimizer,
and waits for nothing. Every fault is named after the rule that ought to speak.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.distributed as dist
from torch.nn.functional import gelu, scaled_dot_product_attention
from torch.utils.data import DataLoader, IterableDataset

from tests.kernel_tables.planted.kernels import LOW_OCCUPANCY, WAVE_TAIL, KernelLoop
from tests.kernel_tables.planted.ranges import marked, window

CLEAN = "clean"


class Slow(IterableDataset):
    """Samples that take 20 ms each to read."""

    def __iter__(self):
        while True:
            time.sleep(0.020)
            yield torch.zeros(8)


@dataclass
class Loop:
    """One training loop and what is wrong with it; sizes are those of an H200."""

    tokens: int = 4096
    width: int = 4096
    layers: int = 12
    heads: int = 32
    dtype: torch.dtype = torch.bfloat16
    autocast: bool = False
    written_out_attention: bool = False
    optimizer: dict = field(default_factory=lambda: {"fused": True})
    after_layer: Callable[[Loop, torch.Tensor], torch.Tensor] = lambda loop, x: x
    in_step: Callable[[Loop, torch.Tensor, int], torch.Tensor] = lambda loop, x, number: x
    between: Callable[[Loop], None] = lambda loop: None
    reduce: Callable[[list[torch.nn.Parameter]], None] = lambda parameters: None
    megabytes: int = 64  # of what is copied
    tiny_kernels: int = 800  # of a graph
    device: str = "cuda"
    warmup: int = 5
    measured: int = 8

    def run(self) -> None:
        """Runs the loop; the measured steps are the profiler's window."""
        self.host = torch.randn(self.megabytes << 18)
        self.pinned = self.host.pin_memory() if self.device == "cuda" else self.host
        self.tiny = torch.zeros(16, device=self.device)
        self.weights = [self._weight() for _ in range(self.layers)]
        self.batch = torch.randn(self.tokens, self.width, device=self.device, dtype=self.dtype)
        self.batches = iter(DataLoader(Slow()))
        self.updates = torch.optim.AdamW(self.weights, lr=1e-5, **self.optimizer)
        for number in range(self.warmup):
            self._step(number)
            self.between(self)
        with window(self.device), marked("measure"):
            for number in range(self.measured):
                with marked("step"):
                    self._step(number)
                self.between(self)

    def wait(self) -> None:
        """Until the GPU has nothing to do."""
        torch.cuda.synchronize() if self.device == "cuda" else None

    @cached_property
    def graph(self) -> torch.cuda.CUDAGraph:
        """Tiny kernels; made when it is replayed first, so that its nodes are in the captures of no other loop."""
        self.tiny.add_(1)  # loads the kernel, which cannot be done while a graph is made
        torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            for _ in range(self.tiny_kernels):
                self.tiny.add_(1)
        return made

    def _weight(self) -> torch.nn.Parameter:
        weight = torch.randn(self.width, self.width, device=self.device, dtype=self.dtype) / self.width**0.5
        return torch.nn.Parameter(weight)

    def _step(self, number: int) -> None:
        with marked("forward"), torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            x = self.batch
            for weight in self.weights:
                x = self.after_layer(self, gelu(x @ weight))
            x = self._attention(self.in_step(self, x, number))
        with marked("loss"):
            loss = x.float().square().mean()
        with marked("backward"):
            loss.backward()
            self.reduce(self.weights)
        with marked("optimizer"):
            self.updates.step()
            self.updates.zero_grad(set_to_none=True)

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        heads = x.view(1, self.tokens, self.heads, -1).transpose(1, 2)
        with marked("attention"):
            if self.written_out_attention:
                scores = heads @ heads.transpose(-2, -1) / heads.shape[-1] ** 0.5
                return scores.softmax(-1) @ heads
            return scaled_dot_product_attention(heads, heads, heads)


def read_now(loop: Loop, x: torch.Tensor) -> torch.Tensor:
    """The host waits for one number."""
    x.flatten()[0].item()
    return x


def copied_pinned(loop: Loop, x: torch.Tensor, number: int) -> torch.Tensor:
    """The host goes on while memory is copied."""
    loop.pinned.to(loop.device, non_blocking=True)
    return x


def copied_pageable(loop: Loop, x: torch.Tensor, number: int) -> torch.Tensor:
    """The host waits for the copy, which goes through a buffer of the driver's."""
    loop.host.to(loop.device)
    return x


def emptied(loop: Loop, x: torch.Tensor, number: int) -> torch.Tensor:
    """What the allocator held has to be allocated anew."""
    torch.cuda.empty_cache()
    return x


def one_after_the_other(loop: Loop, x: torch.Tensor, number: int) -> torch.Tensor:
    """Elementwise kernels that one could do."""
    for _ in range(8):
        x = (x * 1.01 + 0.01).sin()
    return x


def more_in_one(loop: Loop, x: torch.Tensor, number: int) -> torch.Tensor:
    """One step has more to do than the others."""
    for _ in range(100 if number == 3 else 0):
        x.detach() @ x.detach()
    return x


def replayed(loop: Loop, x: torch.Tensor, number: int) -> torch.Tensor:
    """Tiny kernels in a CUDA graph, which is launched once and has gaps of the GPU's own."""
    loop.graph.replay() if loop.device == "cuda" else loop.tiny.add_(1)
    return x


def waited_and_logged(loop: Loop) -> None:
    """The host waits for the GPU before it works for as long as formatting a line of a log takes."""
    loop.wait()
    until = time.perf_counter() + 0.0006
    while time.perf_counter() < until:
        pass


def loaded(loop: Loop) -> None:
    """The next step waits for its batch."""
    next(loop.batches)


def slept(loop: Loop) -> None:
    """The host sleeps while the GPU has nothing to do."""
    loop.wait()
    time.sleep(0.005)


def copied_between(loop: Loop) -> None:
    """The next step waits for a copy."""
    loop.pinned.to(loop.device, non_blocking=True)


def emptied_between(loop: Loop) -> None:
    """The next step has to allocate all that it needs."""
    torch.cuda.empty_cache()


def reduced_afterwards(parameters: list[torch.nn.Parameter]) -> None:
    """The mean of the gradients of all processes, one after the other when all are there; of one alone, its own."""
    for parameter in parameters if dist.is_initialized() else ():
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)


LOOPS: dict[str, Loop | KernelLoop] = {  # by the rule that ought to speak
    CLEAN: Loop(),
    "waiting_for_data": Loop(device="cpu", tokens=64, width=64, layers=2, heads=4, dtype=torch.float32, between=loaded),
    "launch_bound": Loop(tokens=512, width=1024, layers=96, measured=6),
    "idle_host": Loop(between=slept),
    "idle_sync": Loop(layers=8, between=waited_and_logged),
    "idle_copy": Loop(between=copied_between),
    "idle_allocation": Loop(between=emptied_between),
    "small_kernels": Loop(layers=4, in_step=replayed),
    "sync_in_step": Loop(tokens=1024, after_layer=read_now),
    "copy_in_step": Loop(in_step=copied_pinned),
    "pageable_copy": Loop(in_step=copied_pageable),
    "allocation_in_step": Loop(in_step=emptied),
    "unfused_elementwise": Loop(in_step=one_after_the_other),
    "casts": Loop(dtype=torch.float32, autocast=True),
    "no_tensor_cores": Loop(dtype=torch.float32),
    "unfused_attention": Loop(written_out_attention=True, layers=4, measured=24),
    "unfused_optimizer": Loop(optimizer={"foreach": False, "fused": False}),
    "low_occupancy": LOW_OCCUPANCY,
    "wave_tail": WAVE_TAIL,
    "exposed_communication": Loop(reduce=reduced_afterwards),
    "unsteady_steps": Loop(in_step=more_in_one),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault")
    name = parser.parse_args().fault
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["RANK"])))
    LOOPS[name].run()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
