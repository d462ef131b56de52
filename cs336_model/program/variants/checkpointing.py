"""Activation checkpointing: blocks that keep their input alone, and run again in the backward pass."""

import functools

from torch import nn
from torch.utils.checkpoint import checkpoint

from cs336_model.program.spec import RunSpec
from cs336_model.program.variants.values import NO_CHECKPOINT


def with_checkpoints(spec: RunSpec, model: nn.Module) -> None:
    """Every so many blocks one is recomputed, the first among them (Chen et al. 2016, arXiv:1604.06174). In a capture
    what is recomputed stands in the range `recomputation`, inside the backward pass: a range of a forward pass that
    opens there has it around itself."""
    every = spec.dimensions["checkpoint"]
    if every == NO_CHECKPOINT:
        return
    for block in model.blocks[::every]:
        block.forward = functools.partial(
            checkpoint, block.forward, use_reentrant=False,
            preserve_rng_state=False,  # nothing in a block is random
        )  # fmt: skip
