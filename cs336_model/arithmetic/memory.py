"""How much device memory a run of this package's model needs, from its shape and variant. Imports no torch.

tests/cs336_model/test_memory.py runs steps on tensors without data: the peaks agree within 1 % (2 % under autocast),
and what the forward pass keeps agrees to the byte in every variant. Only tensors are counted: the allocator's own
rounding (0.4 GiB of 64 GiB in a training step of xl-2026), cuBLAS's workspace and the CUDA context (about 0.5 GiB) come
on top.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cs336_model import ranges
from cs336_model.arithmetic.checkpoints import NO_CHECKPOINT, group_sizes, groups
from cs336_model.arithmetic.flops import ModelShape, parameter_count

FP32_BYTES = 4


@dataclass(frozen=True)
class NumberBytes:
    """Bytes in one precision. The fields up to `in_softmax` are sums over all tensors of shape (token, d_model), per
    entry of this shape; the others are the bytes of one number in tensors of other shapes."""

    saved: int  # what a block keeps for the backward pass
    saved_at_end: int  # what is kept after the blocks
    in_forward: int  # what is live in the forward pass of a block that keeps nothing
    in_math: int  # what PyTorch's "math" attention adds to in_forward: scaled queries and keys, and copies in fp32
    in_softmax: int  # what is live in the backward pass of a block's softmax
    exp: int  # a number of softmax: exp of a score, its sum, and their gradients
    weight: int  # the copy of a weight that autocast keeps
    number: int  # a weight, its gradient or a moment, or a number in the output of a block


# fp32: a block keeps per (token, d_model) the input, normed input and output of both norms, rotated queries and keys,
# values and merged heads. Under autocast norms and exp stay in fp32, and each projection keeps a cast of its input.
_FP32 = NumberBytes(saved=40, saved_at_end=12, in_forward=20, in_math=4, in_softmax=28, exp=4, weight=0, number=4)
_AUTOCAST = NumberBytes(saved=34, saved_at_end=10, in_forward=18, in_math=12, in_softmax=24, exp=4, weight=2, number=4)
_BF16 = NumberBytes(saved=28, saved_at_end=10, in_forward=10, in_math=16, in_softmax=18, exp=2, weight=0, number=2)
NUMBER_BYTES = {"fp32": _FP32, "tf32": _FP32, "bf16": _AUTOCAST, "fp16": _AUTOCAST, "bf16-weights": _BF16}
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "bf16-weights": 2, "fp16": 2}  # of an activation in a block
MATH = "math"  # attention of PyTorch that computes in fp32 in every precision, and keeps the output of softmax
# Fused attention keeps its output and a logsumexp per row instead of the scores.
FUSED_ATTENTIONS = ("flash", "efficient", "cudnn")


def saved_activation_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that the forward pass keeps for the backward pass; a checkpoint keeps only the input of its blocks."""
    sizes, tokens, d = NUMBER_BYTES[variant["precision"]], shape.tokens, shape.d_model
    # in fp32: the logits, and per token the last norm's inverse RMS and the loss's logsumexp
    end = tokens * (sizes.saved_at_end * d + FP32_BYTES * (shape.vocab_size + 2))
    end += sizes.weight * d * shape.vocab_size
    return _saved_by_blocks(shape, variant) + end


def residual_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes of one activation of the residual stream: the input or the output of a block."""
    return NUMBER_BYTES[variant["precision"]].number * shape.tokens * shape.d_model


def block_gradient_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes of the gradients of one block's parameters."""
    return NUMBER_BYTES[variant["precision"]].number * (shape.block_weights + 2 * shape.d_model)


def _saved_by_blocks(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that all blocks keep after the forward pass: with checkpoints only the inputs of the outermost groups,
    otherwise all that the backward pass needs."""
    if sizes := group_sizes(variant["checkpoint"]):
        return residual_bytes(shape, variant) * sum(1 for _ in groups(range(shape.num_layers), sizes[0]))
    return shape.num_layers * saved_block_bytes(shape, variant)


def _saved_in_backward(
    blocks: range, sizes: tuple[int, ...], shape: ModelShape, variant: Mapping[str, Any]
) -> Iterator[tuple[int, int]]:
    """(block, bytes that all these blocks keep when the backward pass of this block begins), from the last block to the
    first. A group is recomputed when its last block is reached. The group's input is what its first block saves, so it
    is not counted again."""
    if not sizes:
        for block in reversed(blocks):
            yield block, (block - blocks.start + 1) * saved_block_bytes(shape, variant)
        return
    size, *inner = sizes
    for earlier_groups, group in reversed(list(enumerate(groups(blocks, size)))):
        for block, group_bytes in _saved_in_backward(group, tuple(inner), shape, variant):
            yield block, earlier_groups * residual_bytes(shape, variant) + group_bytes


def saved_block_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that one block keeps: tensors of shape (token, d_model), see NumberBytes; gate, up, SiLU and product of
    shape (token, d_ff); two inverse RMS per token in fp32; exp and softmax per score (in "math" only softmax, in fused
    attention neither)."""
    sizes, activation = NUMBER_BYTES[variant["precision"]], ELEMENT_BYTES[variant["precision"]]
    d, d_ff, tokens = shape.d_model, shape.d_ff, shape.tokens
    if variant["attention"] in FUSED_ATTENTIONS:
        attention = tokens * (activation * d + FP32_BYTES * shape.num_heads)
    elif variant["attention"] == MATH:  # queries, keys and values are kept in fp32
        attention = FP32_BYTES * shape.scores + 3 * (FP32_BYTES - activation) * tokens * d
    else:
        attention = (sizes.exp + activation) * shape.scores + sizes.exp * tokens * shape.num_heads
    weights = sizes.weight * shape.block_weights
    return tokens * (sizes.saved * d + 4 * activation * d_ff + 2 * FP32_BYTES) + attention + weights


def _block_forward_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that are live at the fullest moment of a block's forward pass, if it keeps nothing but the copies of its
    weights. This moment is in the feed-forward layer, or in softmax, which has three tensors of the size of the scores;
    in "math", two in fp32 and one of booleans."""
    sizes, activation = NUMBER_BYTES[variant["precision"]], ELEMENT_BYTES[variant["precision"]]
    d, d_ff, tokens = shape.d_model, shape.d_ff, shape.tokens
    in_feed_forward = 4 * activation * tokens * d_ff + sizes.weight * shape.block_weights
    in_attention = sizes.weight * 3 * d * d  # copies of the weights for queries, keys and values
    if variant["attention"] == MATH:  # 9 bytes per score are 4 + 4 + 1; there is also a mask in fp32
        in_attention += 9 * shape.scores + FP32_BYTES * shape.context_length**2 + sizes.in_math * tokens * d
    elif variant["attention"] not in FUSED_ATTENTIONS:
        in_attention += 3 * sizes.exp * shape.scores
    return sizes.in_forward * tokens * d + max(in_feed_forward, in_attention)


def _block_backward_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes that are live at the fullest moment of a block's backward pass, with those gradients of its parameters that
    are ready. This moment is in the feed-forward layer, or in the division of softmax: exp and five gradients of the
    size of the scores are live, all in the type of exp, which is fp32 also under autocast. In "math", the output of
    softmax, two gradients and, on a GPU, a product of output and gradient are live."""
    sizes, activation = NUMBER_BYTES[variant["precision"]], ELEMENT_BYTES[variant["precision"]]
    d, d_ff, tokens = shape.d_model, shape.d_ff, shape.tokens
    in_feed_forward = saved_block_bytes(shape, variant) + tokens * (sizes.number * d + 2 * activation * d_ff)
    in_feed_forward += (sizes.number - sizes.weight) * d * d_ff  # a gradient, in place of the copy of its weights
    if variant["attention"] in FUSED_ATTENTIONS:
        return in_feed_forward
    # copies of the weights for queries, keys and values; gradients of SwiGLU, output projection and norm
    weights = sizes.weight * 3 * d * d + sizes.number * (3 * d * d_ff + d * d + d)
    if variant["attention"] == MATH:
        scores = 4 * FP32_BYTES * shape.scores + 3 * (FP32_BYTES - activation) * tokens * d
    else:
        scores = sizes.exp * (6 * shape.scores + tokens * shape.num_heads)
    return max(in_feed_forward, tokens * (sizes.in_softmax * d + FP32_BYTES) + scores + weights)


def predicted_peak_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes of tensors on one GPU at the fullest moment of a process: of a step, or of making a model that is not
    divided. With divided parameters, this is an upper bound, because gradients count as if they were not divided.
    `shape` has the sequences of one GPU."""
    peak, phases = step_peak_bytes(shape, variant), ranges.PHASES_OF_MODE[variant["mode"]]
    parameter_bytes = NUMBER_BYTES[variant["precision"]].number * parameter_count(shape)
    if variant["parallel"] == "fsdp":
        remote_bytes = parameter_bytes - parameter_bytes // variant["gpus"]  # only other processes keep them
        copies = 3 if ranges.OPTIMIZER in phases else 1  # parameters and the optimizer's two moments
        return peak - copies * remote_bytes + _gathered_bytes(shape, variant)
    if variant["parallel"] == "ddp" and ranges.BACKWARD in phases:
        peak += parameter_bytes  # buckets of gradients
    return max(peak, build_peak_bytes(shape, variant))


def _gathered_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes of the parameters that FSDP gathers at a time: those outside the layers, and two layers."""
    layers = ModelShape(**vars(shape) | {"vocab_size": 0, "num_layers": min(shape.num_layers, 2)})
    outside_layers = 2 * shape.vocab_size * shape.d_model
    return NUMBER_BYTES[variant["precision"]].number * (outside_layers + parameter_count(layers))


def build_peak_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes of the weights, which are made in fp32, and of the mask. If the weights are converted to bf16, also of the
    largest in bf16: it exists in both types for a moment."""
    number = NUMBER_BYTES[variant["precision"]].number
    converted_numbers = shape.d_model * max(shape.vocab_size, shape.d_ff) if number < FP32_BYTES else 0
    return FP32_BYTES * parameter_count(shape) + shape.context_length**2 + number * converted_numbers


def step_peak_bytes(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes at the fullest moment of a step. With a backward pass, it is one of five: in a block of the forward pass,
    if there are checkpoints; when the backward pass begins; in the backward pass of a block, with all gradients of
    later blocks and all that is recomputed; when the backward pass ends, with a gradient for every parameter; or in the
    optimizer, at the largest parameter. The optimizer's moments (averages of gradients) exist all the time."""
    precision, d, phases = variant["precision"], shape.d_model, ranges.PHASES_OF_MODE[variant["mode"]]
    sizes, activation = NUMBER_BYTES[precision], ELEMENT_BYTES[precision]
    parameter_bytes = sizes.number * parameter_count(shape)
    always = parameter_bytes + shape.context_length**2  # parameters and mask
    logits = shape.tokens * shape.vocab_size
    weight_copies = sizes.weight * shape.block_weights  # of one block
    in_forward = (shape.num_layers - 1) * weight_copies + _block_forward_bytes(shape, variant)
    if ranges.BACKWARD not in phases:
        at_head = shape.num_layers * weight_copies + (sizes.number + sizes.weight) * shape.tokens * d
        at_head += sizes.weight * d * shape.vocab_size + activation * logits
        return always + max(in_forward, at_head)
    if variant["checkpoint"] != NO_CHECKPOINT:
        in_forward += _saved_by_blocks(shape, variant)
    output = activation * logits  # kept until the step ends; the loss saves it, or its copy in fp32
    output_beside_copy = output if activation < FP32_BYTES else 0
    # the backward pass of the loss has three tensors of the size of the logits
    at_begin = saved_activation_bytes(shape, variant) + output_beside_copy + 3 * FP32_BYTES * logits
    at_end = bytes_after_backward(shape, variant)
    fullest = max(in_forward, at_begin, at_end, *_backward_bytes_of_blocks(shape, variant, output))
    if ranges.OPTIMIZER not in phases:
        return always + fullest
    largest_parameter = d * max(shape.vocab_size, shape.d_ff)  # the optimizer's denominator is as large
    return always + 2 * parameter_bytes + max(fullest, at_end + sizes.number * largest_parameter)


def bytes_after_backward(shape: ModelShape, variant: Mapping[str, Any]) -> int:
    """Bytes of all gradients, and of the output, which is kept until the step ends."""
    output = ELEMENT_BYTES[variant["precision"]] * shape.tokens * shape.vocab_size
    return NUMBER_BYTES[variant["precision"]].number * parameter_count(shape) + output


def _backward_bytes_of_blocks(shape: ModelShape, variant: Mapping[str, Any], output: int) -> Iterator[int]:
    """Bytes that are live at the fullest moment of each block's backward pass: what all blocks keep, what the block
    adds to that, the gradients of all that comes after the block, and the output."""
    head_gradients = NUMBER_BYTES[variant["precision"]].number * shape.d_model * (shape.vocab_size + 1)
    added = _block_backward_bytes(shape, variant) - saved_block_bytes(shape, variant)
    blocks = range(shape.num_layers)
    for block, saved in _saved_in_backward(blocks, group_sizes(variant["checkpoint"]), shape, variant):
        later_gradients = (shape.num_layers - 1 - block) * block_gradient_bytes(shape, variant)
        yield saved + added + later_gradients + head_gradients + output
