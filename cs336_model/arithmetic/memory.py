"""How much device memory a run of this package's model needs, from its shape and variant. Imports no torch.

Checked against every allocation of a step in fp32 on the meta device, within 3 %, and against what the backward pass
keeps in every variant, to the byte (tests/cs336_model/test_memory.py). The allocator's own rounding, the CUDA context
(about 0.5 GiB) and cuBLAS's workspace come on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cs336_model import ranges
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
    "fp32": SavedBytes(40, 16, 8, 4, 12, 0, FP32_BYTES),
    "tf32": SavedBytes(40, 16, 8, 4, 12, 0, FP32_BYTES),
    "bf16": SavedBytes(34, 8, 6, 4, 10, 2, FP32_BYTES),
    "bf16-weights": SavedBytes(28, 8, 4, 2, 10, 0, 2),
}
ACTIVATION_BYTES = {"bf16": 2, "bf16-weights": 2}  # in a block; otherwise fp32
# They keep their output and a logsumexp per row instead of the scores; a student's FlashAttention is to do so, too.
FUSED = ("flash", "efficient", "cudnn", "own-pytorch", "own-triton")
DEFAULT_VARIANT = {"precision": "fp32", "attention": "eager", "checkpoint": 0}


def saved_activation_bytes(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes that the forward pass keeps for the backward pass; a checkpointed block keeps only its input."""
    saved, tokens, d, layers = SAVED_BYTES[variant["precision"]], shape.tokens, shape.d_model, shape.num_layers
    stride = variant["checkpoint"]
    checkpointed = -(-layers // stride) if stride else 0
    end = tokens * (saved.token_d_of_end * d + FP32_BYTES * (shape.vocab_size + 2))
    end += saved.weight * d * shape.vocab_size
    return (layers - checkpointed) * saved_in_a_block(shape, variant) + checkpointed * saved.number * tokens * d + end


def saved_in_a_block(shape: ModelShape, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes that one block keeps, including two inverse RMS per token in fp32."""
    saved, d, d_ff, tokens = SAVED_BYTES[variant["precision"]], shape.d_model, shape.d_ff, shape.tokens
    fused = variant["attention"] in FUSED
    activation = ACTIVATION_BYTES.get(variant["precision"], FP32_BYTES)
    scores = activation * tokens * d if fused else saved.score * shape.scores
    rows = (FP32_BYTES if fused else saved.row) * tokens * shape.num_heads
    weights = saved.weight * (4 * d * d + 3 * d * d_ff)
    return tokens * (saved.token_d * d + saved.token_d_ff * d_ff + 2 * FP32_BYTES) + scores + rows + weights


def estimated_peak_bytes(shape: ModelShape, mode: str, variant: Mapping[str, Any] = DEFAULT_VARIANT) -> int:
    """Bytes of tensors at the fullest moment of a step. With a backward pass that is where it begins, with everything
    saved and, of a checkpointed block, recomputed, or where it ends, with a gradient for every parameter; the
    optimizer's moments are there all the time."""
    number, activation = (
        SAVED_BYTES[variant["precision"]].number,
        ACTIVATION_BYTES.get(variant["precision"], FP32_BYTES),
    )
    parameter_bytes = number * parameter_count(shape)
    d, logits, phases = shape.d_model, shape.tokens * shape.vocab_size, PHASES_OF_MODE[mode]
    scores = 0 if variant["attention"] in FUSED else 3 * shape.scores
    in_a_block = activation * (max(scores, 4 * shape.tokens * shape.d_ff) + 5 * shape.tokens * d)
    if ranges.BACKWARD not in phases:
        copies = SAVED_BYTES[variant["precision"]].weight * parameter_count(shape)
        return parameter_bytes + copies + max(in_a_block, activation * (logits + shape.tokens * d))
    recomputed = saved_in_a_block(shape, variant) if variant["checkpoint"] else 0
    output = activation * logits  # kept until the step ends; the loss saves it in fp32, otherwise a copy in fp32
    copied = output if activation < FP32_BYTES else 0
    at_begin = saved_activation_bytes(shape, variant) + copied + max(in_a_block + recomputed, 3 * FP32_BYTES * logits)
    at_end = parameter_bytes + output
    if ranges.OPTIMIZER not in phases:
        return parameter_bytes + max(at_begin, at_end)
    largest_parameter = d * max(shape.vocab_size, shape.d_ff)  # the optimizer's denominator is as large
    return 3 * parameter_bytes + max(at_begin, at_end + number * largest_parameter)
