"""Measures attention alone, every context length in one process, and writes the result as JSON.

    python -m cs336_model.program.operator.row --spec '{...}' --output operator.json

A row is one run; a cell is one context length of it. A cell that runs out of memory, that PyTorch refuses, or in which
a student's code is wrong or fails is a result. Every other failure is a traceback, an exit status other than 0, and no
result.
"""

import gc
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from timeit import default_timer
from typing import Any

import torch
from torch import Tensor

from cs336_model.model.transformer import scaled_dot_product_attention
from cs336_model.program.adapters.attention import checks_of_attention, own_attention
from cs336_model.program.adapters.checking import calling
from cs336_model.program.adapters.draft import WHILE_MEASURED, Draft, drafted
from cs336_model.program.adapters.names import own_values
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


def cell(spec: RowSpec, context_length: int, device: torch.device, progress: Progress) -> dict[str, Any]:
    """The measurements at one context length, or why there are none: out of memory, refused by PyTorch, failed.

    Seconds of every forward and backward pass, including the wait for the device; bytes in use between them in the
    first measured pass, and peak bytes; seconds of the pass in which the operator was compiled; seconds of single calls
    (bench.py)."""
    entry = empty_cell(context_length)
    try:
        # an exception of a student's code becomes Failed
        with calling(own_values(spec.dimensions), f"with length {context_length}"):
            return entry | measured_cell(spec, context_length, device, progress) | {"status": "complete"}
    except OutOfMemoryError as error:
        ended = {"status": "out_of_memory", "out_of_memory": out_of_memory_record(error, f"context {context_length}")}
    except WithoutTimes as error:
        ended = reason_of(error)
    return entry | ended


def empty_cell(context_length: int) -> dict[str, Any]:
    """A cell with all keys and no measurement."""
    nothing = dict.fromkeys(
        (
            "status", "reason", "out_of_memory", "compile_seconds", "memory_before_backward_bytes", "peak_bytes",
            "bench_method",
        )
    )  # fmt: skip
    times = {"forward_seconds": [], "backward_seconds": [], "bench_seconds": {}}
    return {"context_length": context_length} | times | nothing


def measured_cell(spec: RowSpec, context_length: int, device: torch.device, progress: Progress) -> dict[str, Any]:
    """The entries of a completely measured cell."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with progress.stage("initialise"):
        inputs, gradient = tensors(spec, context_length, device)
        attend, causal_mask = operator(spec), mask(spec, context_length, device)
    # the first pass is no warm-up: it is checked for refusals, and a compiled operator is compiled
    compile_context = compiling(spec) if is_compiled(spec) else nullcontext()
    attention = spec.dimensions["attention"]
    refusal_context = nullcontext() if attention in OWN_ATTENTIONS else refusals(attention)
    with progress.stage("compile" if is_compiled(spec) else "warmup"), compile_context, refusal_context:
        first = one_pass(spec, attend, inputs, causal_mask, gradient, device)
    with progress.stage("warmup"):
        for _ in range(spec.warmup_passes):
            one_pass(spec, attend, inputs, causal_mask, gradient, device)
    with progress.stage("measured"):
        passes = [one_pass(spec, attend, inputs, causal_mask, gradient, device) for _ in range(spec.measured_passes)]
    require_finite(spec, context_length, inputs)
    peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    with progress.stage("measured"):
        benched = bench(spec, attend, inputs, causal_mask, gradient, device) if spec.bench_s else {}
    return {
        "bench_seconds": benched,
        "bench_method": METHODS[device.type] if benched else None,
        "compile_seconds": sum(first[:2]) if is_compiled(spec) else None,
        "forward_seconds": [forward_s for forward_s, _, _ in passes],
        "backward_seconds": [backward_s for _, backward_s, _ in passes],
        "memory_before_backward_bytes": passes[0][2],
        "peak_bytes": peak_bytes,
    }


def bench(
    spec: RowSpec, attend: Attend, inputs: tuple[Tensor, ...], causal_mask: Tensor | None, gradient: Tensor,
    device: torch.device,
) -> dict[str, list[float]]:  # fmt: skip
    """Seconds of single calls of the forward pass, of the backward pass, and of both together."""
    outputs = []

    def forward() -> None:
        for tensor in inputs:
            tensor.grad = None
        with autocast(spec, device):
            outputs[:] = [attend(*inputs, causal_mask)]

    def backward() -> None:
        outputs.pop().backward(upstream)

    def both() -> None:
        forward()
        backward()

    forward()
    upstream = gradient.to(outputs[0].dtype)
    return {
        "forward": call_seconds(forward, spec.bench_s, device, before=outputs.clear),
        "backward": call_seconds(backward, spec.bench_s, device, before=forward),
        "both": call_seconds(both, spec.bench_s, device),
    }


def operator(spec: RowSpec) -> Attend:
    """The row's attention; compiled for one shape if the row compiles it."""
    attention = spec.dimensions["attention"]
    if attention in OWN_ATTENTIONS:
        return own_attention(attention, spec.adapters)
    if attention != EAGER:
        return fused_attention
    if not is_compiled(spec):
        return scaled_dot_product_attention
    torch.compiler.reset()  # every length is compiled from the beginning, as if it were the only one
    return torch.compile(scaled_dot_product_attention, dynamic=False)


def tensors(spec: RowSpec, context_length: int, device: torch.device) -> tuple[tuple[Tensor, ...], Tensor]:
    """Queries, keys and values (batch, 1, context, head_dim), and the gradient of the output, from the seed. In bf16
    and fp16 they have that type, as under autocast after a model's projections."""
    dtype = dtype_of(spec.dimensions["precision"])
    shape = (spec.dimensions["batch_size"], 1, context_length, spec.dimensions["head_dim"])
    generator = torch.Generator(device=device).manual_seed(spec.seed)
    *inputs, gradient = (torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(4))
    return tuple(tensor.requires_grad_() for tensor in inputs), gradient


def mask(spec: RowSpec, context_length: int, device: torch.device) -> Tensor | None:
    """True at the positions after each query's, for eager attention; None for the others, which mask by themselves."""
    if spec.dimensions["attention"] != EAGER:
        return None
    return torch.ones(context_length, context_length, dtype=torch.bool, device=device).triu(diagonal=1)


def one_pass(
    spec: RowSpec, attend: Attend, inputs: tuple[Tensor, ...], causal_mask: Tensor | None, gradient: Tensor,
    device: torch.device,
) -> tuple[float, float, int | None]:  # fmt: skip
    """Seconds of a forward and of a backward pass, and the bytes in use between them."""
    for tensor in inputs:
        tensor.grad = None
    synchronize(device)
    forward_started = default_timer()
    with autocast(spec, device):
        output = attend(*inputs, causal_mask)
    synchronize(device)
    forward_ended = default_timer()
    in_use = torch.cuda.memory_allocated(device) if device.type == "cuda" else None
    backward_started = default_timer()
    output.backward(gradient.to(output.dtype))
    synchronize(device)
    return forward_ended - forward_started, default_timer() - backward_started, in_use


def require_finite(spec: RowSpec, context_length: int, inputs: tuple[Tensor, ...]) -> None:
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


def main(arguments: list[str] | None = None) -> None:
    """Measures one run and writes its result."""
    options = program_parser("cs336_model.program.operator.row", __doc__.partition("\n")[0]).parse_args(arguments)
    spec, progress = read_row(options.spec), Progress()
    record_packages(spec.targets)
    progress.seconds["import"] = process_age_seconds()
    wait_for_lease(options, progress)
    write_result(row(spec, progress, options.output, options.time_limit_s), options.output)


def row(
    spec: RowSpec, progress: Progress, output: Path | None = None, time_limit_s: float | None = None
) -> dict[str, Any]:
    """The keys of every result, and `cells`: one for each context length. While a student's code runs, a draft of the
    result is at `output`, and remains there if the process ends meanwhile; its checks may take a quarter of
    `time_limit_s`."""
    device, memory, cells = resolve_device(spec.device), {}, []
    choose_matmul_precision(spec)

    def record() -> dict[str, Any]:
        lengths = spec.context_lengths[len(cells) :]
        every_cell = [*cells, *(empty_cell(length) | {"status": UNFINISHED} for length in lengths)]
        facts = {"machine": machine_facts(device), "memory": memory or memory_facts(device), "cells": every_cell}
        return empty_result(spec, profiler="none") | facts | process_facts(progress, device, spec.targets)

    with compiler_settings(spec), forced_backend(spec), drafted(spec, output, record, time_limit_s) as draft:
        with progress.stage("context"):
            open_context(device)
        checks, without_times = checks_or_reason(spec, device, draft, progress)
        for context_length in spec.context_lengths:
            entry = empty_cell(context_length)
            cells.append(entry | without_times if without_times else cell(spec, context_length, device, progress))
            print(f"{spec.run}: context {context_length}: {cells[-1]['status']}", file=sys.stderr, flush=True)
            memory = largest_of(memory, memory_facts(device))
            make_room(device)
            draft.write(WHILE_MEASURED)
        return record() | {"status": "complete", "checks": checks}


def checks_or_reason(
    spec: RowSpec, device: torch.device, draft: Draft, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The checks of a student's attention, and the entries of every cell if it is not to be measured; both empty for
    another attention."""
    try:
        with draft.checking(progress):
            return checks_of_row(spec, device), {}
    except WithoutTimes as error:
        return error.checks, reason_of(error)


def checks_of_row(spec: RowSpec, device: torch.device) -> list[dict[str, Any]]:
    """The checks of a student's attention; [] for another one. Raises Wrong or Failed."""
    attention, precision, width = (spec.dimensions[key] for key in ("attention", "precision", "head_dim"))
    if attention not in OWN_ATTENTIONS:
        return []
    return checks_of_attention(attention, spec.adapters, precision, spec.context_lengths, width, device)


def reason_of(error: WithoutTimes) -> dict[str, str]:
    """The entries of a cell that has no times."""
    return {"status": error.status, "reason": str(error)}


def largest_of(memory: dict[str, int | None], added: dict[str, int | None]) -> dict[str, int | None]:
    """The larger of each number of bytes: every cell has a separate peak."""
    return {name: count and max(count, memory.get(name) or 0) for name, count in added.items()}


def make_room(device: torch.device) -> None:
    """Frees what the last length has left, so that the next has all memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
