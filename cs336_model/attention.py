"""Attention alone: passes over random queries, keys and values at every context length of a run, in one process.

A cell is one context length. If it runs out of memory, PyTorch refuses it, or a user's function fails in it, the cell
says so and the next one is measured.
"""

import gc
import math
from collections.abc import Callable
from contextlib import suppress
from timeit import default_timer

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
    for context_length in spec.context_lengths:
        cells.append(measure_cell(spec, context_length, device))
        gc.collect()
        if device.type == "cuda":
            with suppress(RuntimeError):  # after an access outside of memory, which later cells report, too
                torch.cuda.empty_cache()
    return Attention(status="complete", cells=cells)


def measure_cell(spec: Spec, context_length: int, device: torch.device) -> Cell:
    """The times and errors of one context length, or the reason why there are none, as if it does not fit into memory.
    An error in this project's own functions is raised."""
    cell = Cell(context_length=context_length, status="complete")
    try:
        with variants.forced_backend(spec.attention):
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
    """Measures both passes: compilation and memory first, then times. Raises Unsupported, or what the function does."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    passes = Passes(spec, cell.context_length, device)
    start = default_timer()
    with variants.compiling(spec):
        output = passes.forward()
        cell.memory_before_backward_bytes = torch.cuda.memory_allocated(device) if on_gpu else None
        passes.backward(output)
        devices.synchronize(device)
    cell.compile_seconds = None if spec.compile == "off" else default_timer() - start
    cell.peak_bytes = torch.cuda.max_memory_allocated(device) if on_gpu else None
    computed = [output.detach(), *(tensor.grad for tensor in passes.inputs)]
    names = ("output", "gradient of the queries", "gradient of the keys", "gradient of the values")
    for name, tensor in zip(names, computed, strict=True):
        if tensor is None or not torch.isfinite(tensor).all():
            cell.status, problem = ("failed", "missing") if tensor is None else ("non_finite", "not finite")
            cell.reason = f"the {name} of {spec.attention} is {problem}"
            return
    cell.output_error, cell.gradient_error = compare_with_fp64(passes.inputs, passes.upstream, computed)
    del output, computed
    passes.time(spec.warmup_passes)
    cell.forward_seconds, cell.backward_seconds = passes.time(spec.measured_passes)


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

    def time(self, count: int) -> tuple[list[float], list[float]]:
        """Seconds of forward and backward passes. As in triton.testing.do_bench, nothing waits between them, and a
        buffer larger than any L2 cache is written before each, which gives the host time to queue its kernels."""
        buffer = torch.empty(256 * 2**20 if self.device.type == "cuda" else 0, dtype=torch.int8, device=self.device)
        moments = []
        for _ in range(count):
            buffer.zero_()
            begin_forward = devices.mark_moment(self.device)
            output = self.forward()
            end_forward = devices.mark_moment(self.device)
            buffer.zero_()
            begin_backward = devices.mark_moment(self.device)
            self.backward(output)
            moments.append((begin_forward, end_forward, begin_backward, devices.mark_moment(self.device)))
        devices.synchronize(self.device)
        forward, backward = ([devices.seconds_between(*one[first : first + 2]) for one in moments] for first in (0, 2))
        return forward, backward


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


def compare_with_fp64(inputs: list[Tensor], upstream: Tensor, computed: list[Tensor]) -> tuple[float, float]:
    """(error of the output, largest error of a gradient) of causal attention against its formula in fp64.

    It is that of 64 rows, since terms of a single one may cancel: the first query has a gradient of 0."""
    queries, keys, values = exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    outputs, upstream = [], upstream.double()
    row_count = max(1, 2**24 // (queries.numel() // queries.shape[-1]))  # scores of some rows are in memory at a time
    for first in range(0, queries.shape[-2], row_count):
        rows = slice(first, first + row_count)
        scores = queries[..., rows, :] @ keys.mT * queries.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(diagonal=first + 1)
        output = scores.masked_fill(future, -math.inf).softmax(dim=-1) @ values
        output.backward(upstream[..., rows, :])
        outputs.append(output.detach())
    right = [torch.cat(outputs, dim=-2), *(tensor.grad for tensor in exact)]
    output_error, *gradient_errors = map(worst_error, computed, right)
    return output_error, max(gradient_errors)


def worst_error(computed: Tensor, right: Tensor) -> float:
    """The norm of the difference ÷ that of what is right, of the worst 64 rows."""
    parts = zip(computed.double().split(64, dim=-2), right.split(64, dim=-2), strict=True)
    return max(float((one - other).norm() / other.norm()) for one, other in parts)
