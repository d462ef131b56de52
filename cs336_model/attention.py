"""Attention alone: passes over random queries, keys and values at every context length of a run, in one process.

A cell is one context length. If it runs out of memory, PyTorch refuses it, or a user's function fails in it, the cell
says so and the next one is measured.
"""

import gc
import math
from collections.abc import Callable
from contextlib import nullcontext
from itertools import starmap
from timeit import default_timer

import msgspec
import torch
from torch import Tensor

from cs336_model import device as devices
from cs336_model import loading, variants
from cs336_model.model import scaled_dot_product_attention
from cs336_model.results import Attention, Cell
from cs336_model.spec import Spec


def measure(spec: Spec, device: torch.device) -> Attention:
    """The cells of all context lengths, in their order."""
    cells: list[Cell] = []
    variants.set_matmul_precision(spec.precision)
    if spec.compile != "off":
        variants.prepare_compiler()
    with variants.forced_backend(spec.attention):
        for context_length in spec.context_lengths:
            cells.append(measure_cell(spec, context_length, device))
            try:
                devices.synchronize(device)
            except RuntimeError:  # an access outside of memory: CUDA is of no use to this process any more
                later = spec.context_lengths[len(cells) :]
                cells += [msgspec.structs.replace(cells[-1], context_length=length) for length in later]
                break
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return Attention(status="complete", cells=cells)


def measure_cell(spec: Spec, context_length: int, device: torch.device) -> Cell:
    """The measurements at one context length, or why there are none."""
    cell = Cell(context_length=context_length, status="complete")
    try:
        fill_cell(cell, spec, device)
    except variants.Unsupported as error:
        return Cell(context_length=context_length, status="unsupported", reason=str(error))
    except Exception as error:
        if devices.is_out_of_memory(error):
            memory = devices.describe_out_of_memory(error, f"context {context_length}")
            return Cell(context_length=context_length, status="out_of_memory", reason="no memory", out_of_memory=memory)
        if ":" not in spec.attention:  # it is not a user's function
            raise
        reason = variants.Unsupported(f"{spec.attention} raised {type(error).__name__}: {error}")  # which has no paths
        return Cell(context_length=context_length, status="failed", reason=str(reason))
    return cell


def fill_cell(cell: Cell, spec: Spec, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    passes = Passes(spec, cell.context_length, device)
    is_compiled = spec.compile != "off"
    # the first pass is no warm-up: in it PyTorch may refuse the backend, and code is compiled
    with variants.compiling(spec) if is_compiled else nullcontext(), variants.refusals(spec.attention):
        first_seconds = passes.run()[:2]
    for _ in range(spec.warmup_passes):
        passes.run()
    measured = [passes.run() for _ in range(spec.measured_passes)]
    cell.forward_seconds, cell.backward_seconds = ([one[place] for one in measured] for place in (0, 1))
    cell.memory_before_backward_bytes = measured[0][2]
    cell.compile_seconds = sum(first_seconds) if is_compiled else None
    cell.peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    if spec.bench_s:
        cell.call_seconds = passes.time_calls(spec.bench_s)
    output = passes.forward()
    passes.backward(output)
    computed = [output.detach(), *(tensor.grad for tensor in passes.inputs)]
    names = ("output", "gradient of the queries", "gradient of the keys", "gradient of the values")
    for name, tensor in zip(names, computed, strict=True):
        if tensor is None or not torch.isfinite(tensor).all():
            cell.status, problem = ("failed", "missing") if tensor is None else ("non_finite", "not finite")
            cell.reason = f"the {name} of {spec.attention} is {problem}"
            return
    cell.output_error, cell.gradient_error = compare_with_fp64(passes.inputs, passes.upstream, computed)


class Passes:
    """Forward and backward passes of a run's attention at one context length.

    Queries, keys and values have the shape (batch, 1, context, head size), and the type that a model's projections
    give them in the run's precision."""

    def __init__(self, spec: Spec, context_length: int, device: torch.device) -> None:
        shape = (spec.batch_size, 1, context_length, spec.head_dim)
        generator = torch.Generator(device=device).manual_seed(spec.seed)
        dtype = variants.AUTOCAST.get(spec.precision.removesuffix("-weights"), torch.float32)
        form = {"generator": generator, "device": device, "dtype": dtype}
        *inputs, self.upstream = (torch.randn(shape, **form) for _ in range(4))
        self.spec, self.device, self.attend = spec, device, choose_attention(spec)
        self.inputs = [tensor.requires_grad_() for tensor in inputs]
        place = torch.arange(context_length, device=device)
        self.future = place[:, None] < place if spec.attention == "eager" else None  # a mask of context² entries

    def forward(self) -> Tensor:
        """The output; clears the gradients of the inputs first."""
        for tensor in self.inputs:
            tensor.grad = None
        with variants.autocast(self.spec.precision, self.device):
            return self.attend(*self.inputs, self.future)

    def backward(self, output: Tensor) -> None:
        output.backward(self.upstream.to(output.dtype))

    def run(self) -> tuple[float, float, int | None]:
        """Seconds of a forward and of a backward pass, with the wait for the device; bytes in use between the two."""
        devices.synchronize(self.device)
        start = default_timer()
        output = self.forward()
        devices.synchronize(self.device)
        forward_s = default_timer() - start
        used_bytes = torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else None
        start = default_timer()
        self.backward(output)
        devices.synchronize(self.device)
        return forward_s, default_timer() - start, used_bytes

    def time_calls(self, total_s: float) -> dict[str, list[float]]:
        """Seconds of single calls, for about `total_s` of each kind: forward, backward, and both together."""
        outputs: list[Tensor] = []  # the output of the last forward pass, until a backward pass takes it
        backward = lambda: self.backward(outputs.pop())  # noqa: E731

        def forward() -> None:
            outputs[:] = [self.forward()]

        def both() -> None:
            forward()
            backward()

        # A forward pass precedes each backward pass: compiled code cannot run the same backward pass twice.
        calls = {"forward": (forward, outputs.clear), "backward": (backward, forward), "both": (both, outputs.clear)}
        return {name: time_calls(call, total_s, self.device, before) for name, (call, before) in calls.items()}


def choose_attention(spec: Spec) -> Callable[..., Tensor]:
    """A function of queries, keys, values and the mask of what is in the future."""
    if ":" in spec.attention:  # a user's function, "module:function", which is called as PyTorch's is
        own = loading.find_object(spec.attention)
        return lambda queries, keys, values, future: own(queries, keys, values, is_causal=True)
    if spec.attention != "eager":
        return variants.fused_attention
    if spec.compile == "off":
        return scaled_dot_product_attention
    torch.compiler.reset()  # every length is compiled from the beginning, as if it were the only one
    return torch.compile(scaled_dot_product_attention, dynamic=False)


def time_calls(call: Callable, total_s: float, device: torch.device, before: Callable) -> list[float]:
    """Seconds of each of 3 to 2,000 calls, as in triton.testing.do_bench: by CUDA events, queued without waiting, each
    after `before` and after writing a buffer larger than any L2 cache, which gives the host time to queue the call."""
    buffer = torch.empty(256 * 2**20, dtype=torch.int8, device=device) if device.type == "cuda" else None

    def time_some(count: int) -> list[float]:
        moments = []
        for _ in range(count):
            before()
            if buffer is not None:
                buffer.zero_()
            start = devices.mark_moment(device)
            call()
            moments.append((start, devices.mark_moment(device)))
        devices.synchronize(device)
        return list(starmap(devices.seconds_between, moments))

    one_call_s = sum(time_some(3)) / 3
    time_some(min(int(0.025 / one_call_s), 2000))  # warm-up
    return time_some(max(3, min(int(total_s / one_call_s), 2000)))


def compare_with_fp64(inputs: list[Tensor], upstream: Tensor, computed: list[Tensor]) -> tuple[float, float]:
    """(error of the output, largest error of a gradient) of causal attention, against its formulas in fp64.

    The error is that of the worst row: the norm of the difference ÷ the root of the sum of the squares of the terms of
    which the row is the sum. Rows whose terms cancel count like others, and a missing mask gives 1 or more."""
    queries, keys, values, upstream = (tensor.detach().double() for tensor in (*inputs, upstream))
    length, scale = queries.shape[-2], queries.shape[-1] ** -0.5
    sums, squares = ([torch.zeros_like(queries) for _ in range(4)] for _ in range(2))
    row_count = max(1, 2**24 // (queries.numel() // queries.shape[-1]))  # scores of some rows are in memory at a time
    for first in range(0, length, row_count):
        rows = slice(first, first + row_count)
        row_queries, row_upstream = queries[..., rows, :], upstream[..., rows, :]
        scores = row_queries @ keys.mT * scale
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(diagonal=first + 1)
        weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
        output, weight_gradients = weights @ values, row_upstream @ values.mT
        row_means = (row_upstream * output).sum(dim=-1, keepdim=True)
        # the gradient of softmax has two terms: weights × weight gradients, and weights × their mean in the row
        score_gradients = weights * (weight_gradients - row_means) * scale
        score_squares = (weights * scale) ** 2 * (weight_gradients**2 + row_means**2)
        sums[0][..., rows, :], squares[0][..., rows, :] = output, weights**2 @ values**2
        sums[1][..., rows, :], squares[1][..., rows, :] = score_gradients @ keys, score_squares @ keys**2
        sums[2] += score_gradients.mT @ row_queries
        squares[2] += score_squares.mT @ row_queries**2
        sums[3] += weights.mT @ row_upstream
        squares[3] += (weights**2).mT @ row_upstream**2
    output_error, *gradient_errors = (
        float(((result.double() - exact).norm(dim=-1) / square.sum(dim=-1).sqrt()).max())
        for result, exact, square in zip(computed, sums, squares, strict=True)
    )
    return output_error, max(gradient_errors)
