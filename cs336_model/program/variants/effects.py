"""All dimensions together, as the loop needs them: settings of the process, changes of the model, shape of a batch."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cs336_model.program.spec import RunSpec, check_unknown
from cs336_model.program.variants.attention import forced_backend, with_attention
from cs336_model.program.variants.compilation import compiler_settings, with_compilation
from cs336_model.program.variants.precision import choose_matmul_precision, weights_in_precision
from cs336_model.program.variants.values import NO_CHECKPOINT


def with_checkpoints(spec: RunSpec, model: nn.Module) -> None:
    """Makes every n-th block, from the first, recompute its activations (Chen et al. 2016, arXiv:1604.06174). In a
    capture, recomputed ranges are inside the range `recomputation` of the backward pass."""
    stride = spec.dimensions["checkpoint"]
    if stride == NO_CHECKPOINT:
        return
    for block in model.blocks[::stride]:
        block.forward = functools.partial(
            checkpoint, block.forward, use_reentrant=False,
            preserve_rng_state=False,  # nothing in a block is random
        )  # fmt: skip


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
