"""What it costs to mark a step's parts, forward and backward: `python -m benchmarks.marking [--device cuda]`. A minute.

One forward and backward pass of a model that is so small that the host's time is all there is: twelve layers of width
16. Every way is timed in turn, many times over; of each the shortest step counts, and the median as a check. Time is
the host's, from the start of the step to the end of the last launch.

- plain: no range at all, as in a run that is timed;
- ranges: the parts of the forward pass as NVTX ranges;
- by part: the same, and each backward node in its part (range_marks);
- emitted: PyTorch's own range around each operation, numbered (emit_nvtx; emit_itt on a CPU, which does the same);
- identity: an identity function at both ends of each part, instead of hooks: what its nodes alone take.

Outside a profiler a range costs what its call costs; under nsys every range is written too, so measure there as well.
"""

from __future__ import annotations

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
WAYS = ("plain", "ranges", "by part", "emitted", "identity")


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
        """How long the host takes for a step in one of the ways above."""
        ranges.emit_ranges("nvtx" if name in ("ranges", "by part") else "none")
        if name == "ranges":
            backward.follow_backward(None)
        on_gpu = self.device.type == "cuda"
        with self.emitted() if name == "emitted" else nullcontext():
            step = self.identities if name == "identity" else self.model_step
            taken = seconds(step, time.perf_counter if on_gpu else time.process_time)
            if on_gpu:
                torch.cuda.synchronize()
        return taken

    def emitted(self) -> AbstractContextManager:
        """PyTorch's own ranges around operations, while it is open."""
        profiler = torch.autograd.profiler
        return profiler.emit_nvtx() if self.device.type == "cuda" else profiler.emit_itt()


def main(*, device: str = "cpu", repeats: int = 60) -> None:
    torch.set_num_threads(1)
    step = Step(torch.device(device))
    times = in_turn({name: partial(step.seconds, name) for name in WAYS}, repeats)
    plain_ms = 1e3 * min(times["plain"])
    print_row("way", "ms, least", "median", "added to plain, ms", "÷ plain", heading=True)
    for name, seconds_of in times.items():
        least_ms, added_to = 1e3 * min(seconds_of), 0 if name == "identity" else plain_ms
        print_row(name, least_ms, 1e3 * statistics.median(seconds_of), least_ms - added_to, least_ms / plain_ms)


if __name__ == "__main__":
    run(main)
