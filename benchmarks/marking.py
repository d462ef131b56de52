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

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from cs336_model import ranges
from cs336_model.model import TransformerLM
from cs336_model.model.functional import cross_entropy
from range_marks import backward

SIZES = {"vocab_size": 64, "context_length": 16, "d_model": 16, "num_layers": 12, "num_heads": 2, "d_ff": 32}
PARTS = 3 + 13 * SIZES["num_layers"]  # that one forward pass opens


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

    def seconds(self, step: Callable[[], None]) -> float:
        clock = time.perf_counter if self.device.type == "cuda" else time.process_time
        started = clock()
        step()
        taken = clock() - started
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return taken


def emitted(device: torch.device) -> AbstractContextManager:
    """PyTorch's own ranges around operations, while it is open."""
    return torch.autograd.profiler.emit_nvtx() if device.type == "cuda" else torch.autograd.profiler.emit_itt()


def main() -> None:
    """Times every way, and prints what each adds to a step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--repeats", default=60, type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    step = Step(options.device)

    def only_forward() -> AbstractContextManager:
        ranges.emit_ranges("nvtx")
        backward.follow_backward(None)
        return nullcontext()

    def with_emitter(name: str) -> AbstractContextManager:
        ranges.emit_ranges(name)
        return nullcontext()

    ways = {
        "plain": (lambda: with_emitter("none"), step.model_step),
        "ranges": (only_forward, step.model_step),
        "by part": (lambda: with_emitter("nvtx"), step.model_step),
        "emitted": (lambda: with_emitter("none") and emitted(options.device), step.model_step),
        "identity": (lambda: with_emitter("none"), step.identities),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, (prepared, run) in ways.items():
            with prepared():
                times[name].append(step.seconds(run))
    least = {name: min(seconds) * 1e3 for name, seconds in times.items()}
    for name, seconds in times.items():
        added = least[name] - (0 if name == "identity" else least["plain"])
        median = statistics.median(seconds) * 1e3
        print(f"{name:10} {least[name]:8.3f} ms (median {median:8.3f}), added to a plain step: {added:7.3f} ms")


if __name__ == "__main__":
    main()
