"""Measures the cost of marking the parts of a step: `python -m benchmarks.marking [--device cuda]`.

It times a forward and backward pass of a model so small that only the time of the host matters: twelve layers of width
16. The variants are timed in turn, many times; the shortest step of each counts, and the median is a check. Times are
those of the host, from the start of the step to the end of the last launch. Takes a minute.

- plain: no range, as in a timed run;
- ranges: the parts of the forward pass as NVTX ranges;
- by part: the same, and each backward node in its part (range_marks);
- emitted: PyTorch's range around each operation, numbered (emit_nvtx; emit_itt on a CPU, which does the same);
- identity: an identity function at both ends of each part, instead of hooks: the cost of its nodes.

Outside a profiler a range costs its call; under nsys every range is also written, so measure there as well.
"""

import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor

from benchmarks.harness import in_turn, print_row, run, seconds
from cs336_model import ranges
from cs336_model.model import TransformerLM
from cs336_model.model.functional import cross_entropy
from range_marks import backward

SIZES = {"vocab_size": 64, "context_length": 16, "d_model": 16, "num_layers": 12, "num_heads": 2, "d_ff": 32}
PARTS = 3 + 13 * SIZES["num_layers"]  # that one forward pass opens
VARIANTS = ("plain", "ranges", "by part", "emitted", "identity")


class Identity(torch.autograd.Function):
    """A node that does nothing, in both directions."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient


class Step:
    """A forward and backward pass on a device."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        with device:
            self.model = TransformerLM(**SIZES)
            self.tokens = torch.randint(SIZES["vocab_size"], (1, SIZES["context_length"]))
            self.small = torch.ones(1, requires_grad=True)

    def model_step(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = None
        with ranges.span(ranges.FORWARD):
            loss = cross_entropy(self.model(self.tokens), self.tokens)
        with ranges.span(ranges.BACKWARD):
            loss.backward()

    def identities(self) -> None:
        x = self.small
        for _ in range(2 * PARTS):
            x = Identity.apply(x)
        x.backward()

    def seconds(self, name: str) -> float:
        """The time of the host for a step of one of the variants above."""
        ranges.emit_ranges("nvtx" if name in ("ranges", "by part") else "none")
        if name == "ranges":
            backward.follow_backward(None)
        on_gpu = self.device.type == "cuda"
        with self.emitted() if name == "emitted" else nullcontext():
            step = self.identities if name == "identity" else self.model_step
            step_s = seconds(step, time.perf_counter if on_gpu else time.process_time)
            if on_gpu:
                torch.cuda.synchronize()
        return step_s

    def emitted(self) -> AbstractContextManager:
        """PyTorch's ranges around operations, inside the with block."""
        profiler = torch.autograd.profiler
        return profiler.emit_nvtx() if self.device.type == "cuda" else profiler.emit_itt()


def main(*, device: str = "cpu", repeats: int = 60) -> None:
    torch.set_num_threads(1)
    step = Step(torch.device(device))
    times = in_turn({name: partial(step.seconds, name) for name in VARIANTS}, repeats)
    plain_ms = 1e3 * min(times["plain"])
    print_row("variant", "ms, least", "median", "added to plain, ms", "÷ plain", heading=True)
    for name, seconds_of in times.items():
        min_ms, base_ms = 1e3 * min(seconds_of), 0 if name == "identity" else plain_ms
        print_row(name, min_ms, 1e3 * statistics.median(seconds_of), min_ms - base_ms, min_ms / plain_ms)


if __name__ == "__main__":
    run(main)
