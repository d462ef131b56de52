"""How much device memory a run of this package's model needs, from its shape and variant. Imports no torch.

Checked against every allocation of a step in fp32 on the meta device, within 3 % (4 % with checkpoints), and against
what the backward pass keeps in every variant, to the byte (tests/cs336_model/test_memory.py). The allocator's own
rounding, the CUDA context (about 0.5 GiB) and cuBLAS's workspace come on top.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cs336_model import ranges
from cs336_model.arithmetic.checkpoints import NO_CHECKPOINT, group_sizes, groups
from cs336_model.arithmetic.flops import ModelShape, parameter_count
from cs336_model.ranges import PHASES_OF_MODE

FP32_BYTES = 4
OUTSIDE_TENSORS = 2**30  # CUDA context, cuBLAS's workspace, rounding of the allocator: about that on an H200


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that the forward pass in one precision keeps for the backward pass."""

    token_d: int  # in a layer, per entry of (token, d)
    token_d_ff: int  # in a layer, per entry of (token, d_ff)
    score: int  # per score
    row: int  # per row of scores
    token_d_of_end: int  # after the layers, per entry of (token, d)
    weight: int  # per weight, of which autocast keeps a copy
    number: int  # size of a weight, its gradient or a moment, or an output of a block


# In a layer, fp32: per (token, d) the input, normed input and output of both norms, rotated queries and keys, values
# and merged heads; per (token, d_ff) gate, up, SiLU and product; per score exp and softmax. Under autocast norms stay
# in fp32 and so does exp, and each projection keeps a cast of its input.
SAVED_BYTES = {
    **dict.fromkeys(("fp32", "tf32"), SavedBytes(40, 16, 8, 4, 12, 0, FP32_BYTES)),
    **dict.fromkeys(("bf16", "fp16"), SavedBytes(34, 8, 6, 4, 10, 2, FP32_BYTES)),
    "bf16-weights": SavedBytes(28, 8, 4, 2, 10, 0, 2),
}
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "bf16-weights": 2, "fp16": 2}  # of an activation in a block
# They keep their output and a logsumexp per row instead of the scores; a student's FlashAttention is to do so, too.
FUSED = ("flash", "efficient", "cudnn", "own-pytorch", "own-triton")
DEFAULT_VARIANT = {"precision": "fp32", "attention": "eager", "checkpoint": NO_CHECKPOINT}


def saved_activation_bytes(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes that the forward pass keeps for the backward pass; a checkpoint keeps only the input of its blocks."""
    saved, tokens, d = SAVED_BYTES[variant["precision"]], shape.tokens, shape.d_model
    end = tokens * (saved.token_d_of_end * d + FP32_BYTES * (shape.vocab_size + 2))
    end += saved.weight * d * shape.vocab_size
    return _saved_in(range(shape.num_layers), group_sizes(variant["checkpoint"])[:1], shape, variant) + end


def residual_bytes(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of one activation of the residual stream: the input or the output of a block."""
    return SAVED_BYTES[variant["precision"]].number * shape.tokens * shape.d_model


def gradient_bytes_of_a_block(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of the gradients of one block's parameters."""
    d = shape.d_model
    return SAVED_BYTES[variant["precision"]].number * (4 * d * d + 3 * d * shape.d_ff + 2 * d)


def _saved_in(blocks: range, sizes: tuple[int, ...], shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that these blocks keep after their forward pass with groups of `sizes[0]`; without, all that each saves."""
    if sizes:
        return residual_bytes(shape, variant) * sum(1 for _ in groups(blocks, sizes[0]))
    return len(blocks) * saved_in_a_block(shape, variant)


def _saved_in_backward(
    blocks: range, sizes: tuple[int, ...], shape: ModelShape, variant: Mapping[str, Any]
) -> Iterator[tuple[int, int]]:
    """(block, bytes that these blocks keep when its backward pass begins), from the last block to the first. A group is
    recomputed when its last block is reached; its input is what its first block saves, and not counted twice."""
    if not sizes:
        for number in reversed(blocks):
            yield number, (number - blocks.start + 1) * saved_in_a_block(shape, variant)
        return
    size, *inner = sizes
    for earlier, group in reversed(list(enumerate(groups(blocks, size)))):
        for block, inside in _saved_in_backward(group, tuple(inner), shape, variant):
            yield block, earlier * residual_bytes(shape, variant) + inside


def saved_in_a_block(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes that one block keeps, including two inverse RMS per token in fp32."""
    saved, d, d_ff, tokens = SAVED_BYTES[variant["precision"]], shape.d_model, shape.d_ff, shape.tokens
    fused = variant["attention"] in FUSED
    activation = ELEMENT_BYTES[variant["precision"]]
    scores = activation * tokens * d if fused else saved.score * shape.scores
    rows = (FP32_BYTES if fused else saved.row) * tokens * shape.num_heads
    weights = saved.weight * (4 * d * d + 3 * d * d_ff)
    return tokens * (saved.token_d * d + saved.token_d_ff * d_ff + 2 * FP32_BYTES) + scores + rows + weights


def estimated_peak_bytes(shape: ModelShape, mode: str, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of tensors at the fullest moment of a step. With a backward pass, it is where that begins, in the backward
    pass of a block, with all gradients of later blocks and all that is recomputed, or where it ends, with a gradient
    for every parameter; the optimizer's moments exist all the time."""
    precision = variant["precision"]
    number, activation = SAVED_BYTES[precision].number, ELEMENT_BYTES[precision]
    parameter_bytes = number * parameter_count(shape)
    d, logits, phases = shape.d_model, shape.tokens * shape.vocab_size, PHASES_OF_MODE[mode]
    scores = 0 if variant["attention"] in FUSED else 3 * shape.scores
    in_a_block = activation * (max(scores, 4 * shape.tokens * shape.d_ff) + 5 * shape.tokens * d)
    if ranges.BACKWARD not in phases:
        copies = SAVED_BYTES[precision].weight * parameter_count(shape)
        return parameter_bytes + copies + max(in_a_block, activation * (logits + shape.tokens * d))
    output = activation * logits  # kept until the step ends; the loss saves it in fp32, otherwise a copy in fp32
    copied = output if activation < FP32_BYTES else 0
    at_begin = saved_activation_bytes(shape, variant) + copied + 3 * FP32_BYTES * logits
    in_blocks = in_a_block + max(_in_backward_of_blocks(shape, variant, output))
    at_end = parameter_bytes + output
    fullest = max(at_begin, in_blocks, at_end)
    if ranges.OPTIMIZER not in phases:
        return parameter_bytes + fullest
    largest_parameter = d * max(shape.vocab_size, shape.d_ff)  # the optimizer's denominator is as large
    return 3 * parameter_bytes + max(fullest, at_end + number * largest_parameter)


def _in_backward_of_blocks(shape: ModelShape, variant: Mapping[str, Any], output: int) -> Iterator[int]:
    """Bytes that are kept when the backward pass of each block begins: what the blocks keep, the gradients of all that
    comes after the block, and the output."""
    number = SAVED_BYTES[variant["precision"]].number
    of_head = number * shape.d_model * (shape.vocab_size + 1)
    blocks = range(shape.num_layers)
    for block, kept in _saved_in_backward(blocks, group_sizes(variant["checkpoint"]), shape, variant):
        later = (shape.num_layers - 1 - block) * gradient_bytes_of_a_block(shape, variant)
        yield kept + later + of_head + output
