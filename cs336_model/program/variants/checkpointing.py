"""Activation checkpointing: blocks that keep their input alone, and run again in the backward pass."""

import functools
from contextlib import AbstractContextManager, nullcontext

from torch import nn
from torch.utils.checkpoint import checkpoint

from cs336_model import ranges
from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.values import NO_CHECKPOINT
from cs336_model.ranges import span


def with_checkpoints(spec: RunSpec, model: nn.Module) -> None:
    """Every so many blocks one is recomputed, the first among them (Chen et al. 2016, arXiv:1604.06174). What is
    recomputed runs in the range `recomputation`, inside the backward pass."""
    every = spec.dimensions["checkpoint"]
    if every == NO_CHECKPOINT:
        return
    for block in model.blocks[::every]:
        block.forward = functools.partial(
            checkpoint, block.forward, use_reentrant=False,
            preserve_rng_state=False,  # nothing in a block is random
            context_fn=_forward_and_recomputation,
        )  # fmt: skip


def _forward_and_recomputation() -> tuple[AbstractContextManager, AbstractContextManager]:
    return nullcontext(), span(ranges.RECOMPUTATION)
