"""The loops: `python -m tests.kernel_tables.planted.programs FAULT` runs one under a profiler.

The loop without a fault keeps the GPU busy with bf16 matrix multiplies and fused attention, has a fused optimizer,
and waits for nothing. Every fault is named after the rule that ought to speak.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import torch
import torch.distributed as dist
from torch.nn.functional import gelu, scaled_dot_product_attention

from tests.kernel_tables.planted.kernels import LOW_OCCUPANCY, WAVE_TAIL, KernelLoop
from tests.kernel_tables.planted.ranges import marked, window

CLEAN = "clean"


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
    after_layer: Callable = lambda x: x
    in_step: Callable = lambda x, number: x
    between: Callable = lambda: None
    reduce: Callable = lambda parameters: None
    device: str = "cuda"
    warmup: int = 5
    measured: int = 8

    def run(self) -> None:
        """Runs the loop; the measured steps are the profiler's window."""
        self.weights = [self._weight() for _ in range(self.layers)]
        self.batch = torch.randn(self.tokens, self.width, device=self.device, dtype=self.dtype)
        self.updates = torch.optim.AdamW(self.weights, lr=1e-5, **self.optimizer)
        for number in range(self.warmup):
            self._step(number)
            self.between()
        with window(self.device), marked("measure"):
            for number in range(self.measured):
                with marked("step"):
                    self._step(number)
                self.between()

    def _weight(self) -> torch.nn.Parameter:
        weight = torch.randn(self.width, self.width, device=self.device, dtype=self.dtype) / self.width**0.5
        return torch.nn.Parameter(weight)

    def _step(self, number: int) -> None:
        with marked("forward"), torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            x = self.batch
            for weight in self.weights:
                x = self.after_layer(gelu(x @ weight))
            x = self._attention(self.in_step(x, number))
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


def programs(device: str = "cuda", megabytes: int = 64) -> dict[str, Loop | KernelLoop]:
    """Every loop by the rule that ought to speak of it; MEGABYTES is the size of what is copied."""
    host = torch.randn(megabytes << 18)
    pinned = host.pin_memory() if device == "cuda" else host
    tiny = torch.zeros(16, device=device)

    def read_now(x):
        x.flatten()[0].item()
        return x

    def copied(source, **how):
        def copy(x, number):
            source.to(device, **how)
            return x

        return copy

    def emptied(x, number):
        torch.cuda.empty_cache()
        return x

    def one_after_the_other(x, number):
        for _ in range(8):
            x = (x * 1.01 + 0.01).sin()
        return x

    def more_in_one(x, number):
        for _ in range(100 if number == 3 else 0):
            x.detach() @ x.detach()
        return x

    def waited_and_logged():
        torch.cuda.synchronize() if device == "cuda" else None
        until = time.perf_counter() + 0.0006  # what formatting a line of a log takes
        while time.perf_counter() < until:
            pass

    def slept():
        torch.cuda.synchronize() if device == "cuda" else None  # else the GPU still has work while the host sleeps
        time.sleep(0.005)

    loops = {
        CLEAN: Loop(),
        "launch_bound": Loop(tokens=512, width=1024, layers=96, measured=6),
        "idle_host": Loop(between=slept),
        "idle_sync": Loop(layers=8, between=waited_and_logged),
        "idle_copy": Loop(between=lambda: pinned.to(device, non_blocking=True)),
        "idle_allocation": Loop(between=torch.cuda.empty_cache),
        "small_kernels": Loop(layers=4, in_step=replayed(tiny, 800, device)),
        "sync_in_step": Loop(tokens=1024, after_layer=read_now),
        "copy_in_step": Loop(in_step=copied(pinned, non_blocking=True)),
        "pageable_copy": Loop(in_step=copied(host)),
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
    return {name: replace(loop, device=device) for name, loop in loops.items()}


def reduced_afterwards(parameters: list[torch.nn.Parameter]) -> None:
    """The mean of the gradients of all processes, one after the other when all are there; of one alone, its own."""
    for parameter in parameters if dist.is_initialized() else ():
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)


def replayed(tiny: torch.Tensor, kernels: int, device: str) -> Callable:
    """So many tiny kernels in a CUDA graph, which is launched once and has gaps of the GPU's own."""

    @cache
    def graph() -> torch.cuda.CUDAGraph:  # made by the loop that replays it: its nodes are in the captures of no other
        tiny.add_(1)  # loads the kernel, which cannot be done while a graph is made
        torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            for _ in range(kernels):
                tiny.add_(1)
        return made

    def replay(x, number):
        graph().replay() if device == "cuda" else tiny.add_(1)
        return x

    return replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault")
    name = parser.parse_args().fault
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["RANK"])))
    programs()[name].run()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
