"""All dimensions together, as the loop needs them: settings of the process, changes of the model, shape of a batch."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cs336_model.arithmetic.checkpoints import NO_CHECKPOINT, group_sizes
from cs336_model.program.spec import RunSpec, check_unknown
from cs336_model.program.variants.attention import forced_backend, with_attention
from cs336_model.program.variants.compilation import compiler_settings, with_compilation
from cs336_model.program.variants.precision import choose_matmul_precision, weights_in_precision


def with_checkpoints(spec: RunSpec, model: nn.Module) -> None:
    """Makes groups of consecutive blocks keep only their input, and recompute the rest in the backward pass (Chen et
    al. 2016, arXiv:1604.06174). In a capture, recomputed ranges are inside the range `recomputation`."""
    if spec.dimensions["checkpoint"] != NO_CHECKPOINT:
        model.grouped = functools.partial(in_checkpoints, group_sizes(spec.dimensions["checkpoint"]))


def in_checkpoints(sizes: Sequence[int], blocks: Sequence[nn.Module]) -> list[Callable[..., Tensor]]:
    """What a forward pass calls one after the other: these blocks, or checkpoints of `sizes[0]` blocks each, whose
    blocks have the remaining sizes."""
    if not sizes:
        return [*blocks]
    size, *inner = sizes
    return [
        functools.partial(
            checkpoint, functools.partial(run_all, in_checkpoints(inner, blocks[first : first + size])),
            use_reentrant=False, preserve_rng_state=False,  # nothing in a block is random
        )
        for first in range(0, len(blocks), size)
    ]  # fmt: skip


def run_all(runs: Sequence[Callable[..., Tensor]], x: Tensor, *others: Any) -> Tensor:
    """The output of the last of these, each called with the output of the one before."""
    for run in runs:
        x = run(x, *others)
    return x


# model and context_length choose the arguments of the constructor, mode the phases of a step
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
    weights_in_precision(spec, model)
    with_attention(spec, model, device)
    with_checkpoints(spec, model)
    with_compilation(spec, model)


def batch_shape(spec: RunSpec) -> tuple[int, int]:
    """(sequences on all GPUs, tokens of each), including the token that follows the last one."""
    return spec.dimensions["batch_size"], spec.dimensions["context_length"] + 1
