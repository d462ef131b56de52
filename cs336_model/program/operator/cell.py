"""One cell of a run of attention alone: forward and backward passes of one operator at one context length."""

from collections.abc import Callable
from contextlib import nullcontext
from timeit import default_timer
from typing import Any

import torch
from torch import Tensor

from cs336_model.model.transformer import scaled_dot_product_attention
from cs336_model.program.device import synchronize
from cs336_model.program.operator.spec import RowSpec
from cs336_model.program.out_of_memory import OutOfMemoryError, out_of_memory_record
from cs336_model.program.process_cost import Progress
from cs336_model.program.variants.attention import fused_attention, refusals
from cs336_model.program.variants.compilation import compiling, is_compiled
from cs336_model.program.variants.precision import autocast
from cs336_model.program.variants.unsupported import Unsupported
from cs336_model.program.variants.values import BF16, BF16_WEIGHTS, EAGER

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def cell(spec: RowSpec, context_length: int, device: torch.device, progress: Progress) -> dict[str, Any]:
    """What was measured at one context length, or why it could not be: out of memory, or refused by PyTorch.

    Seconds of every forward and backward pass, the device waited for at the end of each; bytes in use between them in
    the first measured pass, and the most of all; seconds of the pass in which the operator was compiled."""
    entry = empty_cell(context_length)
    try:
        return entry | measured_cell(spec, context_length, device, progress) | {"status": "complete"}
    except OutOfMemoryError as error:
        ended = {"status": "out_of_memory", "out_of_memory": out_of_memory_record(error, f"context {context_length}")}
    except Unsupported as error:
        ended = {"status": "unsupported", "reason": str(error)}
    return entry | ended


def empty_cell(context_length: int) -> dict[str, Any]:
    """A cell with every key and no measurement."""
    nothing = dict.fromkeys(
        ("status", "reason", "out_of_memory", "compile_seconds", "memory_before_backward_bytes", "peak_bytes")
    )
    return {"context_length": context_length, "forward_seconds": [], "backward_seconds": []} | nothing


def measured_cell(spec: RowSpec, context_length: int, device: torch.device, progress: Progress) -> dict[str, Any]:
    """The entries of a cell that was measured to its end."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with progress.stage("initialise"):
        heads, gradient = tensors(spec, context_length, device)
        attend, future = operator(spec), mask(spec, context_length, device)
    # apart from all others: what looks for refusals takes time, and a compiled operator is compiled in it
    compiled = compiling(spec) if is_compiled(spec) else nullcontext()
    with progress.stage("compile" if is_compiled(spec) else "warmup"), compiled, refusals(spec.dimensions["attention"]):
        first = one_pass(spec, attend, heads, future, gradient, device)
    with progress.stage("warmup"):
        for _ in range(spec.warmup_passes):
            one_pass(spec, attend, heads, future, gradient, device)
    with progress.stage("measured"):
        passes = [one_pass(spec, attend, heads, future, gradient, device) for _ in range(spec.measured_passes)]
    require_finite(spec, context_length, heads)
    return {
        "compile_seconds": sum(first[:2]) if is_compiled(spec) else None,
        "forward_seconds": [one[0] for one in passes],
        "backward_seconds": [one[1] for one in passes],
        "memory_before_backward_bytes": passes[0][2],
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    }


def operator(spec: RowSpec) -> Attend:
    """The row's attention; compiled for one shape where it is to be."""
    if spec.dimensions["attention"] != EAGER:
        return fused_attention
    if not is_compiled(spec):
        return scaled_dot_product_attention
    torch.compiler.reset()  # else the second length makes a graph for all of them
    return torch.compile(scaled_dot_product_attention, dynamic=False)


def tensors(spec: RowSpec, context_length: int, device: torch.device) -> tuple[tuple[Tensor, ...], Tensor]:
    """Queries, keys and values (batch, 1, context, head_dim), and the gradient of the output, from the seed. In bf16
    they are in bf16, as a model's projections give them under autocast too."""
    dtype = torch.bfloat16 if spec.dimensions["precision"] in (BF16, BF16_WEIGHTS) else torch.float32
    shape = (spec.dimensions["batch_size"], 1, context_length, spec.dimensions["head_dim"])
    generator = torch.Generator(device=device).manual_seed(spec.seed)
    made = [torch.randn(shape, generator=generator, device=device, dtype=dtype) for _ in range(4)]
    return tuple(one.requires_grad_() for one in made[:3]), made[3]


def mask(spec: RowSpec, context_length: int, device: torch.device) -> Tensor | None:
    """True behind each query's own position, for the attention that is written out; a backend has its own."""
    if spec.dimensions["attention"] != EAGER:
        return None
    return torch.ones(context_length, context_length, dtype=torch.bool, device=device).triu(diagonal=1)


def one_pass(
    spec: RowSpec, attend: Attend, heads: tuple[Tensor, ...], future: Tensor | None, gradient: Tensor,
    device: torch.device,
) -> tuple[float, float, int | None]:  # fmt: skip
    """Seconds of a forward and of a backward pass, and the bytes that are in use between them."""
    for one in heads:
        one.grad = None
    synchronize(device)
    started = default_timer()
    with autocast(spec, device):
        output = attend(*heads, future)
    synchronize(device)
    between = default_timer()
    in_use = torch.cuda.memory_allocated(device) if device.type == "cuda" else None
    begun = default_timer()
    output.backward(gradient.to(output.dtype))
    synchronize(device)
    return between - started, default_timer() - begun, in_use


def require_finite(spec: RowSpec, context_length: int, heads: tuple[Tensor, ...]) -> None:
    """Raises FloatingPointError where a gradient of the last pass is NaN or infinite."""
    for name, one in zip(("queries", "keys", "values"), heads, strict=True):
        if not torch.isfinite(one.grad).all():
            raise FloatingPointError(
                f"{spec.run}, context {context_length}: the gradient of the {name} is not finite; no time of it counts"
            )
