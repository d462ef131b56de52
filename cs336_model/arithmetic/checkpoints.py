"""Which blocks share a checkpoint, and what a backward pass computes again. Imports no torch.

A value of the dimension `checkpoint` is a text: "0" for none; "8" if every 8 consecutive blocks share a checkpoint;
"8-2" if these are divided again, into checkpoints of 2 blocks, and so on. The last group of a level may be smaller.
"""

from collections.abc import Iterator
from itertools import pairwise

from cs336_model import ranges
from cs336_model.arithmetic.flops import ModelShape, matmul_flops

NO_CHECKPOINT = "0"
CHECKPOINT_PATTERN = "^(0|[1-9][0-9]{0,3}(-[1-9][0-9]{0,3})*)$"  # of a value


def group_sizes(checkpoint: str) -> tuple[int, ...]:
    """Blocks per checkpoint by level, the outermost first: (8, 2) for "8-2"; () without checkpoints."""
    return () if checkpoint == NO_CHECKPOINT else tuple(int(size) for size in checkpoint.split("-"))


def nesting_error(checkpoint: str) -> str | None:
    """Why the groups of a value that matches the pattern cannot be nested; None if they can."""
    if all(outer > inner for outer, inner in pairwise(group_sizes(checkpoint))):
        return None
    return f"checkpoint {checkpoint}: the groups inside a group must be smaller than it; write the largest first"


def groups(blocks: range, size: int) -> Iterator[range]:
    """The blocks in groups of `size`; the last group may be smaller."""
    for first in range(0, len(blocks), size):
        yield blocks[first : first + size]


def recomputed_flops(shape: ModelShape, checkpoint: str) -> dict[str, float]:
    """FLOPs of the matrix products that a backward pass computes again, by part of the model.

    PyTorch stops recomputing a group as soon as it has the last tensor that the group saved. In a group without inner
    groups, that is the input of the last product of its last block; in others, it is the input of the last inner group.
    """
    block_count, without_last_product = _recomputed(range(shape.num_layers), group_sizes(checkpoint))
    flops = {part: block_count * total / shape.num_layers for part, total in matmul_flops(shape).items()}
    flops[ranges.FEED_FORWARD] -= without_last_product * 2 * shape.tokens * shape.d_model * shape.d_ff
    return flops | {ranges.HEAD: 0}


def _recomputed(blocks: range, sizes: tuple[int, ...]) -> tuple[int, int]:
    """(number of recomputed blocks, how many of them without their last product); a block counts each time that it is
    recomputed."""
    if not sizes:
        return 0, 0
    size, *inner = sizes
    if not inner:
        return len(blocks), sum(1 for _ in groups(blocks, size))
    count = without_last_product = 0
    for group in groups(blocks, size):
        *_, last_inner_group = groups(group, inner[0])  # its input is where recomputing the group stops
        inner_count, inner_without_last_product = _recomputed(group, tuple(inner))
        count += len(group) - len(last_inner_group) + inner_count
        without_last_product += inner_without_last_product
    return count, without_last_product
