"""Loops of one kernel that fills the GPU badly; what is wrong with it is told by counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from tests.kernel_tables.planted.ranges import marked, window

# It multiplies and adds in registers, and refers to its shared memory that it may be given some.
SOURCE = """
extern "C" __global__ void multiply_and_add(float* values, int times) {
    extern __shared__ float room[];
    float value = values[threadIdx.x];
    for (int i = 0; i < times; i++) value = value * 0.999f + 0.001f;
    if (value == 123.0f) values[threadIdx.x] = room[threadIdx.x];
}
"""
LAUNCHES, TIMES = 10, 20_000  # in a step; multiplications of a thread


@dataclass
class KernelLoop:
    """Steps that launch one kernel; a launch is of `waves` times as many blocks as run at once, and `more`."""

    threads: int
    shared_bytes: int
    together: int  # blocks that a multiprocessor of an H200 holds
    waves: int
    more: int = 0
    device: str = "cuda"
    warmup: int = 3
    measured: int = 8

    def run(self) -> None:
        """Runs the loop; the measured steps are the profiler's window."""
        values = torch.zeros(self.threads, device=self.device)
        launch = self._kernel() if self.device == "cuda" else lambda values: values.mul_(0.999)
        for _ in range(self.warmup * LAUNCHES):
            launch(values)
        with window(self.device), marked("measure"):
            for _ in range(self.measured):
                with marked("step"):
                    for _ in range(LAUNCHES):
                        launch(values)

    def _kernel(self) -> Callable[[torch.Tensor], None]:
        at_once = torch.cuda.get_device_properties(0).multi_processor_count * self.together
        grid, block = (at_once * self.waves + self.more, 1, 1), (self.threads, 1, 1)
        return lambda values: _compiled()(grid, block, (values, TIMES), self.shared_bytes)


@cache
def _compiled() -> Callable:
    return torch.cuda._compile_kernel(SOURCE, "multiply_and_add")


# Of 228 KiB of shared memory four blocks of four warps get 47 each: 16 of 64 warps.
LOW_OCCUPANCY = KernelLoop(threads=128, shared_bytes=47 * 1024, together=4, waves=8)
# Blocks of 32 warps, two of which fill a multiprocessor: the second wave has four blocks.
WAVE_TAIL = KernelLoop(threads=1024, shared_bytes=0, together=2, waves=1, more=4)
