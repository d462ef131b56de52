"""How much device memory a run of this package's model needs, from its shape and variant. Imports no torch.

Checked against every allocation of a step, followed without touching a byte, within 1 % (2 % under autocast), and
against what the backward pass keeps in every variant, to the byte (tests/cs336_model/test_memory.py). Only tensors are
counted: the allocator's own rounding (0.4 GiB of 64 GiB in a training step of xl-2026), cuBLAS's workspace and the CUDA
context (about 0.5 GiB) come on top.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cs336_model import ranges
from cs336_model.arithmetic.checkpoints import NO_CHECKPOINT, group_sizes, groups
from cs336_model.arithmetic.flops import ModelShape, parameter_count

FP32_BYTES = 4
OUTSIDE_TENSORS = 2**30  # CUDA context, cuBLAS's workspace, rounding of the allocator: about that on an H200


@dataclass(frozen=True)
class NumberBytes:
    """Bytes of tensors in one precision: per entry of (token, d), and of one number of other tensors."""

    saved: int  # that a layer keeps for the backward pass, per entry of (token, d)
    saved_at_end: int  # the same, after the layers
    in_forward: int  # that is live in a layer that keeps nothing
    in_math: int  # that PyTorch's "math" attention adds to it: scaled queries and keys, and copies in fp32
    in_softmax: int  # that is live in the backward pass of a layer's softmax
    exponential: int  # a number of softmax: exp of a score, its sum, and their gradients
    weight: int  # per weight, of which autocast keeps a copy
    number: int  # a weight, its gradient or a moment, or an output of a block


# fp32: a layer keeps per (token, d) the input, normed input and output of both norms, rotated queries and keys, values
# and merged heads. Under autocast norms stay in fp32 and so does exp, and each projection keeps a cast of its input.
NUMBER_BYTES = {
    **dict.fromkeys(("fp32", "tf32"), NumberBytes(40, 12, 20, 4, 28, 4, 0, FP32_BYTES)),
    **dict.fromkeys(("bf16", "fp16"), NumberBytes(34, 10, 18, 12, 24, 4, 2, FP32_BYTES)),
    "bf16-weights": NumberBytes(28, 10, 10, 16, 18, 2, 0, 2),
}
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "bf16-weights": 2, "fp16": 2}  # of an activation in a block
MATH = "math"  # of PyTorch: computes in fp32 in every precision, and keeps the output of softmax
# Fused attention keeps its output and a logsumexp per row instead of the scores; a student's is assumed to do so, too.
FUSED = ("flash", "efficient", "cudnn", "own-pytorch", "own-triton")
DEFAULT_VARIANT = {"precision": "fp32", "attention": "eager", "checkpoint": NO_CHECKPOINT}


def saved_activation_bytes(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes that the forward pass keeps for the backward pass; a checkpoint keeps only the input of its blocks."""
    sizes, tokens, d = NUMBER_BYTES[variant["precision"]], shape.tokens, shape.d_model
    end = tokens * (sizes.saved_at_end * d + FP32_BYTES * (shape.vocab_size + 2))
    end += sizes.weight * d * shape.vocab_size
    return _saved_in(range(shape.num_layers), group_sizes(variant["checkpoint"])[:1], shape, variant) + end


def residual_bytes(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of one activation of the residual stream: the input or the output of a block."""
    return NUMBER_BYTES[variant["precision"]].number * shape.tokens * shape.d_model


def gradient_bytes_of_a_block(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of the gradients of one block's parameters."""
    d = shape.d_model
    return NUMBER_BYTES[variant["precision"]].number * (4 * d * d + 3 * d * shape.d_ff + 2 * d)


def _saved_in(blocks: range, sizes: tuple[int, ...], shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that these blocks keep after their forward pass: inputs of groups of `sizes[0]`; without groups, all."""
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
    """Bytes that one block keeps, including two inverse RMS per token in fp32: per (token, d_ff) gate, up, SiLU and
    product, and per score exp and softmax."""
    sizes, d, d_ff, tokens = NUMBER_BYTES[variant["precision"]], shape.d_model, shape.d_ff, shape.tokens
    activation = ELEMENT_BYTES[variant["precision"]]
    if variant["attention"] in FUSED:
        attention = tokens * (activation * d + FP32_BYTES * shape.num_heads)
    elif variant["attention"] == MATH:
        attention = FP32_BYTES * shape.scores + 3 * (FP32_BYTES - activation) * tokens * d
    else:
        attention = (sizes.exponential + activation) * shape.scores + sizes.exponential * tokens * shape.num_heads
    weights = sizes.weight * (4 * d * d + 3 * d * d_ff)
    return tokens * (sizes.saved * d + 4 * activation * d_ff + 2 * FP32_BYTES) + attention + weights


def _in_forward_of_a_block(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that are live at the fullest moment of a block's forward pass, if it keeps nothing but the copies of its
    weights. This moment is in the feed-forward layer, or in softmax, which has three tensors of the size of the scores;
    in "math", two in fp32 and one of booleans."""
    sizes, activation = NUMBER_BYTES[variant["precision"]], ELEMENT_BYTES[variant["precision"]]
    d, d_ff, tokens = shape.d_model, shape.d_ff, shape.tokens
    in_feed_forward = 4 * activation * tokens * d_ff + sizes.weight * (4 * d * d + 3 * d * d_ff)
    in_attention = sizes.weight * 3 * d * d
    if variant["attention"] == MATH:
        in_attention += 9 * shape.scores + FP32_BYTES * shape.context_length**2 + sizes.in_math * tokens * d
    elif variant["attention"] not in FUSED:
        in_attention += 3 * sizes.exponential * shape.scores
    return sizes.in_forward * tokens * d + max(in_feed_forward, in_attention)


def _in_backward_of_a_block(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that are live at the fullest moment of a block's backward pass, with those gradients of its parameters that
    are ready. This moment is in the feed-forward layer, or in the division of softmax: exp and five gradients of the
    size of the scores are live, all in the type of exp, which is fp32 also under autocast. In "math", the output of
    softmax, two gradients and, on a GPU, a product of output and gradient are live."""
    sizes, activation = NUMBER_BYTES[variant["precision"]], ELEMENT_BYTES[variant["precision"]]
    d, d_ff, tokens = shape.d_model, shape.d_ff, shape.tokens
    in_feed_forward = saved_in_a_block(shape, variant) + tokens * (sizes.number * d + 2 * activation * d_ff)
    in_feed_forward += (sizes.number - sizes.weight) * d * d_ff
    if variant["attention"] in FUSED:
        return in_feed_forward
    weights = sizes.weight * 3 * d * d + sizes.number * (3 * d * d_ff + d * d + d)
    if variant["attention"] == MATH:
        scores = 4 * FP32_BYTES * shape.scores + 3 * (FP32_BYTES - activation) * tokens * d
    else:
        scores = sizes.exponential * (6 * shape.scores + tokens * shape.num_heads)
    return max(in_feed_forward, tokens * (sizes.in_softmax * d + FP32_BYTES) + scores + weights)


def estimated_peak_bytes(shape: ModelShape, mode: str, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of tensors at the fullest moment of a process: while its model is made, or of a step."""
    return max(peak_while_built(shape, variant), peak_of_a_step(shape, mode, variant))


def peak_while_built(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes of weights, which are made in fp32, and of the mask, when the largest weight is converted."""
    number, largest = NUMBER_BYTES[variant["precision"]].number, shape.d_model * max(shape.vocab_size, shape.d_ff)
    converted = number * largest if number < FP32_BYTES else 0
    return FP32_BYTES * parameter_count(shape) + shape.context_length**2 + converted


def peak_of_a_step(shape: ModelShape, mode: str, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes at the fullest moment of a step. With a backward pass, this is one of four: in a block of the forward pass
    with checkpoints; when the backward pass begins; in the backward pass of a block, with all gradients of later
    blocks and all that is recomputed; or when it ends, with a gradient for every parameter. The optimizer's moments
    exist all the time."""
    precision, d, phases = variant["precision"], shape.d_model, ranges.PHASES_OF_MODE[mode]
    sizes, activation = NUMBER_BYTES[precision], ELEMENT_BYTES[precision]
    parameter_bytes = sizes.number * parameter_count(shape)
    standing = parameter_bytes + shape.context_length**2  # and the mask
    logits = shape.tokens * shape.vocab_size
    copies = sizes.weight * (4 * d * d + 3 * d * shape.d_ff)  # of the weights of a block
    in_forward = (shape.num_layers - 1) * copies + _in_forward_of_a_block(shape, variant)
    if ranges.BACKWARD not in phases:
        at_head = shape.num_layers * copies + (sizes.number + sizes.weight) * shape.tokens * d
        at_head += sizes.weight * d * shape.vocab_size + activation * logits
        return standing + max(in_forward, at_head)
    if variant["checkpoint"] != NO_CHECKPOINT:
        in_forward += _saved_in(range(shape.num_layers), group_sizes(variant["checkpoint"])[:1], shape, variant)
    output = activation * logits  # kept until the step ends; the loss saves it in fp32, otherwise a copy in fp32
    copied = output if activation < FP32_BYTES else 0
    at_begin = saved_activation_bytes(shape, variant) + copied + 3 * FP32_BYTES * logits
    at_end = bytes_after_backward(shape, variant)
    fullest = max(in_forward, at_begin, at_end, *_in_backward_of_blocks(shape, variant, output))
    if ranges.OPTIMIZER not in phases:
        return standing + fullest
    largest_parameter = d * max(shape.vocab_size, shape.d_ff)  # the optimizer's denominator is as large
    return standing + 2 * parameter_bytes + max(fullest, at_end + sizes.number * largest_parameter)


def bytes_after_backward(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of all gradients, and of the output, which is kept until the step ends."""
    output = ELEMENT_BYTES[variant["precision"]] * shape.tokens * shape.vocab_size
    return NUMBER_BYTES[variant["precision"]].number * parameter_count(shape) + output


def _in_backward_of_blocks(shape: ModelShape, variant: Mapping[str, Any], output: int) -> Iterator[int]:
    """Bytes that are live at the fullest moment of each block's backward pass: those of the block, what the others
    keep, the gradients of all that comes after the block, and the output."""
    of_head = NUMBER_BYTES[variant["precision"]].number * shape.d_model * (shape.vocab_size + 1)
    inside = _in_backward_of_a_block(shape, variant) - saved_in_a_block(shape, variant)
    blocks = range(shape.num_layers)
    for block, kept in _saved_in_backward(blocks, group_sizes(variant["checkpoint"]), shape, variant):
        later = (shape.num_layers - 1 - block) * gradient_bytes_of_a_block(shape, variant)
        yield kept + inside + later + of_head + output
