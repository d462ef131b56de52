"""What the dimensions of a run change: settings of the process (precision, backend of attention, compiler with an empty
cache) and the model (weights, attention, checkpoints, compilation)."""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cs336_model import ranges
from cs336_model.arithmetic.checkpoints import NO_CHECKPOINT, group_sizes
from cs336_model.model.transformer import CausalSelfAttention
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.spec import RunSpec, check_unknown
from cs336_model.program.variants.attention import forced_backend, set_attention
from cs336_model.program.variants.precision import choose_matmul_precision, round_weights
from cs336_model.program.variants.values import NOT_COMPILED, WHOLE_MODEL
from cs336_model.program.without_times import Unsupported


def set_checkpoints(spec: RunSpec, model: nn.Module) -> None:
    """Makes groups of consecutive blocks keep only their input, and recompute the rest in the backward pass (Chen et
    al. 2016, arXiv:1604.06174). In a capture, ranges of what is recomputed are inside the range `recomputation`."""
    if spec.dimensions["checkpoint"] != NO_CHECKPOINT:
        model.checkpoints_of = functools.partial(checkpoints_of, group_sizes(spec.dimensions["checkpoint"]))


def checkpoints_of(sizes: Sequence[int], blocks: Sequence[nn.Module]) -> list[Callable[..., Tensor]]:
    """What a forward pass calls one after another: checkpoints of `sizes[0]` blocks each, with checkpoints of the
    remaining sizes inside them; without sizes, the blocks themselves."""
    if not sizes:
        return [*blocks]
    size, *inner = sizes
    groups = [blocks[first : first + size] for first in range(0, len(blocks), size)]
    group_calls = [functools.partial(call_in_turn, checkpoints_of(inner, group)) for group in groups]
    options = {"use_reentrant": False, "preserve_rng_state": False}  # nothing in a block is random
    return [functools.partial(checkpoint, group_call, **options) for group_call in group_calls]


def call_in_turn(calls: Sequence[Callable[..., Tensor]], x: Tensor, *others: Any) -> Tensor:
    """The output of the last of these calls; the first gets `x`, each other one the output of the one before."""
    for call in calls:
        x = call(x, *others)
    return x


# All dimensions that have an effect, here or elsewhere: for example, model and context_length choose the arguments of
# the constructor, mode the phases of a step.
KNOWN_DIMENSIONS = (
    "model", "context_length", "mode", "precision", "batch_size", "compile", "attention", "checkpoint",
    "gpus", "parallel", "optimizer",
)  # fmt: skip


@contextmanager
def process_settings(spec: RunSpec) -> Iterator[None]:
    """Settings of the entire process, made before the model and valid while it runs.

    Raises ValueError for a dimension that has no effect here, so that nothing is measured under a wrong name."""
    check_unknown("dimensions of the specification", spec.dimensions, KNOWN_DIMENSIONS)
    choose_matmul_precision(spec)
    with compiler_settings(spec), forced_backend(spec):
        yield


def change_model(spec: RunSpec, model: nn.Module, device: torch.device) -> None:
    """Turns the plain model into the run's variant, in place. Raises Unsupported if this machine refuses it."""
    round_weights(spec, model)
    set_attention(spec, model, device)
    set_checkpoints(spec, model)
    mark_for_compilation(spec, model)


def is_compiled(spec: RunSpec) -> bool:
    """Whether a part of the model is compiled."""
    return spec.dimensions["compile"] != NOT_COMPILED


@contextmanager
def compiler_settings(spec: RunSpec) -> Iterator[None]:
    """Settings of the process for the compiler: an empty cache, deleted at the end, and spans that do nothing while a
    graph is traced, which they would break. In a capture, the compiled code opens ranges of its own."""
    if not is_compiled(spec):
        yield
        return
    ranges.silence_spans_while(torch.compiler.is_compiling)
    with TemporaryDirectory(prefix="inductor-", ignore_cleanup_errors=True) as cache:
        # Triton's cache is below inductor's unless it is set
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ.pop("TRITON_CACHE_DIR", None)
        from torch._inductor import config

        config.cpp.enable_kernel_profile = True  # otherwise profiles of a CPU program lack its fused kernels
        ranges.mark_compiled_graphs()
        yield


def mark_for_compilation(spec: RunSpec, model: nn.Module) -> None:
    """Marks the model or its attention to be compiled: its forward and its backward pass, each when it first runs."""
    if not is_compiled(spec):
        return
    if spec.dimensions["compile"] == WHOLE_MODEL:
        model.compile()
        return
    for module in model.modules():
        if isinstance(module, CausalSelfAttention):
            module.compile()


@contextmanager
def compiling(spec: RunSpec) -> Iterator[None]:
    """A with block for the first step of a compiled model. Raises Unsupported if this machine cannot compile it (no C++
    compiler, no Triton for this GPU), and OutOfMemoryError if the compiler runs out of memory."""
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as error:
        cause = error.inner_exception
        if isinstance(cause, OutOfMemoryError):
            raise cause from error
        raise Unsupported(f"compile {spec.dimensions['compile']}", f"{type(cause).__name__}: {cause}") from error


def graph_counts(spec: RunSpec, before: dict[str, int] | None = None) -> dict[str, int] | None:
    """How many graphs this process has compiled (`graphs`), how many of them since the counts `before` (`graphs_later`;
    0 without `before`), and how many breaks there are between graphs. None if nothing is compiled."""
    if not is_compiled(spec):
        return None
    from torch._dynamo.utils import counters

    graphs = counters["stats"]["unique_graphs"]
    graphs_later = graphs - before["graphs"] if before else 0
    return {"graphs": graphs, "graphs_later": graphs_later, "graph_breaks": sum(counters["graph_break"].values())}
