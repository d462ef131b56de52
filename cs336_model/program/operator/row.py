"""Measures attention alone, every context length in one process, and writes the result as JSON.

    python -m cs336_model.program.operator.row --spec '{...}' --output operator.json

A row is one run; a cell is one context length of it. If a cell runs out of memory, PyTorch refuses it, or a student's
code is wrong or fails in it, that is its result. Any other failure prints a traceback, and the row has no result.
"""

import gc
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from timeit import default_timer
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cs336_model.model.transformer import scaled_dot_product_attention
from cs336_model.program.adapters.attention import checks_of_attention, student_attention
from cs336_model.program.adapters.checking import calling
from cs336_model.program.adapters.draft import WHILE_MEASURED, Draft, open_draft
from cs336_model.program.adapters.names import student_implementations
from cs336_model.program.device import machine_facts, memory_facts, open_context, resolve_device, synchronize
from cs336_model.program.loading import record_packages
from cs336_model.program.operator.bench import METHODS, call_seconds
from cs336_model.program.operator.spec import RowSpec, read_row
from cs336_model.program.out_of_memory import OutOfMemoryError, out_of_memory_record
from cs336_model.program.process import Progress, process_age_seconds, program_parser, wait_for_lease
from cs336_model.program.result import empty_result, process_facts, write_result
from cs336_model.program.variants.attention import forced_backend, fused_attention, refusals
from cs336_model.program.variants.effects import compiler_settings, compiling, is_compiled
from cs336_model.program.variants.precision import autocast, choose_matmul_precision, dtype_of
from cs336_model.program.variants.values import EAGER, OWN_ATTENTIONS
from cs336_model.program.without_times import UNFINISHED, WithoutTimes, Wrong

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def main(arguments: list[str] | None = None) -> None:
    """Measures one run and writes its result."""
    options = program_parser("cs336_model.program.operator.row", __doc__.partition("\n")[0]).parse_args(arguments)
    spec, progress = read_row(options.spec), Progress()
    record_packages(spec.targets)
    progress.seconds["import"] = process_age_seconds()
    wait_for_lease(options, progress)
    write_result(row_result(spec, progress, options.output, options.time_limit_s), options.output)


def row_result(
    spec: RowSpec, progress: Progress, output: Path | None = None, time_limit_s: float | None = None
) -> dict[str, Any]:
    """A result with every key, and `cells`: one for each context length. While a student's code runs, a draft of the
    result is at `output`; it stays there if the process ends meanwhile. The checks of the code may take a quarter of
    `time_limit_s`."""
    device = resolve_device(spec.device)
    cells: list[dict[str, Any]] = []
    memory: dict[str, int | None] = {}  # the largest numbers of all cells
    choose_matmul_precision(spec)

    def result_so_far() -> dict[str, Any]:
        later_lengths = spec.context_lengths[len(cells) :]
        all_cells = [*cells, *(empty_cell(length) | {"status": UNFINISHED} for length in later_lengths)]
        facts = {"machine": machine_facts(device), "memory": memory or memory_facts(device), "cells": all_cells}
        return empty_result(spec, profiler="none") | facts | process_facts(progress, device, spec.targets)

    with compiler_settings(spec), forced_backend(spec), open_draft(spec, output, result_so_far, time_limit_s) as draft:
        with progress.stage("context"):
            open_context(device)
        checks, why_not_measured = checks_and_reason(spec, device, draft, progress)
        for context_length in spec.context_lengths:
            if why_not_measured:
                cells.append(empty_cell(context_length) | why_not_measured)
            else:
                cells.append(cell_result(spec, context_length, device, progress))
            print(f"{spec.run}: context {context_length}: {cells[-1]['status']}", file=sys.stderr, flush=True)
            memory = largest_memory(memory, memory_facts(device))
            free_memory(device)
            draft.write(WHILE_MEASURED)
        return result_so_far() | {"status": "complete", "checks": checks}


def checks_and_reason(
    spec: RowSpec, device: torch.device, draft: Draft, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """(checks, reason): the checks of a student's attention; and, if they end the run, the entries that give every cell
    this reason. Both are empty for another attention."""
    attention, precision, width = (spec.dimensions[key] for key in ("attention", "precision", "head_dim"))
    if attention not in OWN_ATTENTIONS:
        return [], {}
    try:
        with draft.checking(progress):
            return checks_of_attention(attention, spec.adapters, precision, spec.context_lengths, width, device), {}
    except WithoutTimes as error:
        return error.checks, reason_of(error)


def reason_of(error: WithoutTimes) -> dict[str, str]:
    """The entries of a cell that has no times."""
    return {"status": error.status, "reason": str(error)}


def largest_memory(memory: dict[str, int | None], cell_memory: dict[str, int | None]) -> dict[str, int | None]:
    """The larger of each number of bytes; None if unknown. Every cell has a separate peak."""
    return {
        name: None if byte_count is None else max(byte_count, memory.get(name) or 0)
        for name, byte_count in cell_memory.items()
    }


def free_memory(device: torch.device) -> None:
    """Frees what the last length has left, so that the next has all memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def cell_result(spec: RowSpec, context_length: int, device: torch.device, progress: Progress) -> dict[str, Any]:
    """The measurements at one context length, or why there are none: out of memory, refused by PyTorch, wrong, failed.

    They are: seconds of every measured forward and backward pass, including the wait for the device; bytes in use
    between the first forward and backward pass, and peak bytes; seconds of the two passes in which the operator was
    compiled; seconds of single calls (bench.py)."""
    entry = empty_cell(context_length)
    try:
        # an exception of a student's code becomes Failed
        with calling(student_implementations(spec.dimensions), f"with length {context_length}"):
            return entry | measured_cell(spec, context_length, device, progress) | {"status": "complete"}
    except OutOfMemoryError as error:
        record = out_of_memory_record(error, f"context {context_length}")
        return entry | {"status": "out_of_memory", "out_of_memory": record}
    except WithoutTimes as error:
        return entry | reason_of(error)


def empty_cell(context_length: int) -> dict[str, Any]:
    """A cell with all keys and no measurement."""
    return {
        "context_length": context_length, "status": None, "reason": None, "out_of_memory": None,
        "forward_seconds": [], "backward_seconds": [], "compile_seconds": None, "bench_seconds": {},
        "bench_method": None, "memory_before_backward_bytes": None, "peak_bytes": None,
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
    refusal_context = nullcontext() if attention in OWN_ATTENTIONS else refusals(attention)
    with progress.stage("compile" if is_compiled(spec) else "warmup"), compile_context, refusal_context:
        first_pass = attention_pass.measure()
    with progress.stage("warmup"):
        for _ in range(spec.warmup_passes):
            attention_pass.measure()
    with progress.stage("measured"):
        passes = [attention_pass.measure() for _ in range(spec.measured_passes)]
    require_finite(spec, context_length, attention_pass.inputs)
    peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    with progress.stage("measured"):
        bench_seconds = attention_pass.seconds_of_calls() if spec.bench_s else {}
    return {
        "bench_seconds": bench_seconds,
        "bench_method": METHODS[device.type] if bench_seconds else None,
        "compile_seconds": first_pass.forward_s + first_pass.backward_s if is_compiled(spec) else None,
        "forward_seconds": [measured.forward_s for measured in passes],
        "backward_seconds": [measured.backward_s for measured in passes],
        "memory_before_backward_bytes": passes[0].used_bytes,
        "peak_bytes": peak_bytes,
    }


def require_finite(spec: RowSpec, context_length: int, inputs: list[Tensor]) -> None:
    """Raises Wrong for a student's attention, FloatingPointError for another, if a gradient of the last pass is NaN or
    infinite."""
    attention = spec.dimensions["attention"]
    for name, tensor in zip(("queries", "keys", "values"), inputs, strict=True):
        if torch.isfinite(tensor.grad).all():
            continue
        if attention in OWN_ATTENTIONS:
            raise Wrong(attention, f"the gradient of the {name} is not finite (length {context_length})")
        raise FloatingPointError(
            f"{spec.run}, context {context_length}: the gradient of the {name} is not finite; no time of it counts"
        )


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
    if attention in OWN_ATTENTIONS:
        return student_attention(attention, spec.adapters)
    if attention != EAGER:
        return fused_attention
    if not is_compiled(spec):
        return scaled_dot_product_attention
    torch.compiler.reset()  # every length is compiled from the beginning, as if it were the only one
    return torch.compile(scaled_dot_product_attention, dynamic=False)


if __name__ == "__main__":
    main()
