"""Measures attention alone, every context length in one process, and writes the result as JSON.

    python -m cs336_model.program.operator.row --spec '{...}' --output operator.json

A row is one run; a cell is one context length of it. If a cell runs out of memory, PyTorch refuses it, or the user's
function fails in it, that is its result. Any other failure prints a traceback, and the row has no result.
"""

import gc
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from timeit import default_timer
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cs336_model.model.transformer import scaled_dot_product_attention
from cs336_model.program.device import machine_facts, memory_facts, open_context, resolve_device, synchronize
from cs336_model.program.loading import record_packages
from cs336_model.program.operator.accuracy import attention_errors
from cs336_model.program.operator.bench import METHODS, call_seconds
from cs336_model.program.operator.spec import RowSpec, is_own, read_row
from cs336_model.program.out_of_memory import OutOfMemoryError, out_of_memory_record
from cs336_model.program.process import Progress, process_age_seconds, program_parser, wait_for_lease
from cs336_model.program.result import empty_result, process_facts, write_result
from cs336_model.program.targets import UnusableModel, find_object, one_line_error
from cs336_model.program.variants.attention import forced_backend, fused_attention, refusals
from cs336_model.program.variants.effects import compiler_settings, compiling, is_compiled
from cs336_model.program.variants.precision import autocast, choose_matmul_precision, dtype_of
from cs336_model.program.variants.values import EAGER
from cs336_model.program.without_times import Failed, WithoutTimes

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
QUANTITIES = ("the output", "the gradient of the queries", "the gradient of the keys", "the gradient of the values")


def main(arguments: list[str] | None = None) -> None:
    """Measures one run and writes its result."""
    options = program_parser("cs336_model.program.operator.row", __doc__.partition("\n")[0]).parse_args(arguments)
    spec, progress = read_row(options.spec), Progress()
    record_packages(spec.targets)
    progress.seconds["import"] = process_age_seconds()
    wait_for_lease(options, progress)
    write_result(row_result(spec, progress), options.output)


def row_result(spec: RowSpec, progress: Progress) -> dict[str, Any]:
    """A result with every key, and `cells`: one for each context length."""
    device = resolve_device(spec.device)
    cells: list[dict[str, Any]] = []
    memory: dict[str, int | None] = {}  # the largest numbers of all cells
    choose_matmul_precision(spec)
    with compiler_settings(spec), forced_backend(spec):
        with progress.stage("context"):
            open_context(device)
        for context_length in spec.context_lengths:
            cells.append(cell_result(spec, context_length, device, progress))
            print(f"{spec.run}: context {context_length}: {cells[-1]['status']}", file=sys.stderr, flush=True)
            memory = largest_memory(memory, memory_facts(device))
            if is_lost(device):
                later_lengths = spec.context_lengths[len(cells) :]
                cells += [cells[-1] | {"context_length": length} for length in later_lengths]
                break
            free_memory(device)
        facts = {"machine": machine_facts(device), "memory": memory, "cells": cells, "status": "complete"}
        return empty_result(spec, profiler="none") | facts | process_facts(progress, device, spec.targets)


def largest_memory(memory: dict[str, int | None], cell_memory: dict[str, int | None]) -> dict[str, int | None]:
    """The larger of each number of bytes; None if unknown. Every cell has a separate peak."""
    return {
        name: None if byte_count is None else max(byte_count, memory.get(name) or 0)
        for name, byte_count in cell_memory.items()
    }


def is_lost(device: torch.device) -> bool:
    """Whether an error, such as an access outside of memory, has left the device unusable for this process."""
    try:
        synchronize(device)
    except RuntimeError:
        return True
    return False


def free_memory(device: torch.device) -> None:
    """Frees what the last length has left, so that the next has all memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def cell_result(spec: RowSpec, context_length: int, device: torch.device, progress: Progress) -> dict[str, Any]:
    """The measurements at one context length, or why there are none: out of memory, refused by PyTorch, failed.

    They are: seconds of every measured forward and backward pass, including the wait for the device; bytes in use
    between the first forward and backward pass, and peak bytes; seconds of the two passes in which the operator was
    compiled; seconds of single calls (bench.py); errors against fp64 (accuracy.py)."""
    entry, attention = empty_cell(context_length), spec.dimensions["attention"]
    try:
        return entry | measured_cell(spec, context_length, device, progress) | {"status": "complete"}
    except OutOfMemoryError as error:
        record = out_of_memory_record(error, f"context {context_length}")
        return entry | {"status": "out_of_memory", "out_of_memory": record}
    except WithoutTimes as error:
        return entry | {"status": error.status, "reason": str(error)}
    except Exception as error:  # whatever the user's function raises
        if not is_own(attention):
            raise
        traceback.print_exc()
        is_absent = isinstance(error, UnusableModel)
        reason = str(error) if is_absent else f"raised {one_line_error(error)}, at length {context_length}"
        return entry | {"status": Failed.status, "reason": str(Failed(attention, reason))}


def empty_cell(context_length: int) -> dict[str, Any]:
    """A cell with all keys and no measurement."""
    return {
        "context_length": context_length, "status": None, "reason": None, "out_of_memory": None,
        "forward_seconds": [], "backward_seconds": [], "compile_seconds": None, "bench_seconds": {},
        "bench_method": None, "memory_before_backward_bytes": None, "peak_bytes": None,
        "output_error": None, "gradient_error": None,
    }  # fmt: skip


def measured_cell(spec: RowSpec, context_length: int, device: torch.device, progress: Progress) -> dict[str, Any]:
    """The entries of a completely measured cell."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with progress.stage("initialise"):
        attention_pass = AttentionPass(spec, context_length, device)
    # the first pass is no warm-up: in it, PyTorch may refuse the backend, and a compiled operator is compiled
    compile_context = compiling(spec) if is_compiled(spec) else nullcontext()
    attention = spec.dimensions["attention"]
    refusal_context = nullcontext() if is_own(attention) else refusals(attention)
    with progress.stage("compile" if is_compiled(spec) else "warmup"), compile_context, refusal_context:
        first_pass = attention_pass.measure()
    with progress.stage("warmup"):
        for _ in range(spec.warmup_passes):
            attention_pass.measure()
    with progress.stage("measured"):
        passes = [attention_pass.measure() for _ in range(spec.measured_passes)]
    peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    with progress.stage("measured"):
        bench_seconds = attention_pass.seconds_of_calls() if spec.bench_s else {}
    with progress.stage("accuracy"):
        errors = attention_pass.errors()
    return errors | {
        "bench_seconds": bench_seconds,
        "bench_method": METHODS[device.type] if bench_seconds else None,
        "compile_seconds": first_pass.forward_s + first_pass.backward_s if is_compiled(spec) else None,
        "forward_seconds": [measured.forward_s for measured in passes],
        "backward_seconds": [measured.backward_s for measured in passes],
        "memory_before_backward_bytes": passes[0].used_bytes,
        "peak_bytes": peak_bytes,
    }


class MeasuredPass(NamedTuple):
    """Seconds of a forward and of a backward pass, and the bytes in use between them (None on a CPU)."""

    forward_s: float
    backward_s: float
    used_bytes: int | None


class AttentionPass:
    """A forward and a backward pass of the row's attention, with random tensors (batch, 1, context, head_dim) from the
    seed. They have the precision's type of activations, as after a model's projections."""

    def __init__(self, spec: RowSpec, context_length: int, device: torch.device) -> None:
        dtype = dtype_of(spec.dimensions["precision"])
        shape = (spec.dimensions["batch_size"], 1, context_length, spec.dimensions["head_dim"])
        generator = torch.Generator(device=device).manual_seed(spec.seed)
        *inputs, gradient = (torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(4))
        self.spec, self.device, self.attend = spec, device, attention_of_row(spec)
        self.inputs = [tensor.requires_grad_() for tensor in inputs]  # queries, keys and values
        self.output_gradient = gradient
        self.causal_mask = None  # only eager attention needs one, others mask by themselves
        if spec.dimensions["attention"] == EAGER:
            ones = torch.ones(context_length, context_length, dtype=torch.bool, device=device)
            self.causal_mask = ones.triu(diagonal=1)

    def forward(self) -> Tensor:
        """The output."""
        with autocast(self.spec, self.device):
            return self.attend(*self.inputs, self.causal_mask)

    def clear_gradients(self) -> None:
        """Frees the gradients of the previous pass."""
        for tensor in self.inputs:
            tensor.grad = None

    def measure(self) -> MeasuredPass:
        """Runs both passes once, and waits for the device after each."""
        self.clear_gradients()
        synchronize(self.device)
        forward_start_s = default_timer()
        output = self.forward()
        synchronize(self.device)
        forward_s = default_timer() - forward_start_s
        used_bytes = torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else None
        backward_start_s = default_timer()
        output.backward(self.output_gradient.to(output.dtype))
        synchronize(self.device)
        return MeasuredPass(forward_s, default_timer() - backward_start_s, used_bytes)

    def errors(self) -> dict[str, float]:
        """The errors of the output and of the gradients against fp64 (accuracy.py). Raises Failed if a gradient is
        missing, or a number is not finite."""
        self.clear_gradients()
        output = self.forward()
        output.backward(self.output_gradient.to(output.dtype))
        computed = [output.detach(), *(tensor.grad for tensor in self.inputs)]
        for name, tensor in zip(QUANTITIES, computed, strict=True):
            if tensor is None or not torch.isfinite(tensor).all():
                problem = "missing" if tensor is None else "not finite"
                raise Failed(self.spec.dimensions["attention"], f"{name} is {problem}, at length {output.shape[-2]}")
        return attention_errors(self.inputs, self.output_gradient, computed)

    def seconds_of_calls(self) -> dict[str, list[float]]:
        """Seconds of single calls of the forward pass, of the backward pass, and of both together (bench.py)."""
        outputs = []  # the output of the last forward pass, until a backward pass takes it

        def forward() -> None:
            self.clear_gradients()
            outputs[:] = [self.forward()]

        def backward() -> None:
            outputs.pop().backward(output_gradient)

        def both() -> None:
            forward()
            backward()

        forward()
        output_gradient = self.output_gradient.to(outputs[0].dtype)  # under autocast, another type
        return {
            "forward": call_seconds(forward, self.spec.bench_s, self.device, before=outputs.clear),
            "backward": call_seconds(backward, self.spec.bench_s, self.device, before=forward),
            "both": call_seconds(both, self.spec.bench_s, self.device),
        }


def attention_of_row(spec: RowSpec) -> Attend:
    """The row's attention; if it is to be compiled, marked to be compiled for a single shape."""
    attention = spec.dimensions["attention"]
    if is_own(attention):
        own_attention = find_object(attention)
        return lambda queries, keys, values, future: own_attention(queries, keys, values, is_causal=True)
    if attention != EAGER:
        return fused_attention
    if not is_compiled(spec):
        return scaled_dot_product_attention
    torch.compiler.reset()  # every length is compiled from the beginning, as if it were the only one
    return torch.compile(scaled_dot_product_attention, dynamic=False)


if __name__ == "__main__":
    main()
