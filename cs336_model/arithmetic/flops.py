"""FLOPs and least memory traffic of one forward pass, from the shapes alone. Imports no torch.

A matrix product of (m, k) by (k, n) counts 2 m k n FLOPs. The parts are named like the ranges of the model, summed
over all layers. Elementwise work (norm, rope, residual, activation, mask and scale) is not counted as FLOPs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cs336_model import ranges
from cs336_model.arguments import constructor_arguments

SOFTMAX_FLOPS_PER_SCORE = 5  # max, subtract, exp, sum, divide
BACKWARD_IN_FORWARDS = 2  # each matrix product of the forward pass has two in the backward pass, each as large
PROJECT_CONSTRUCTOR = "cs336_model.model:TransformerLM"
SHAPE_ARGUMENTS = ("vocab_size", "d_model", "num_layers", "num_heads", "d_ff")  # of that constructor


@dataclass(frozen=True)
class ModelShape:
    """The sizes that determine the work of a forward pass: B, S, V, d, L, H and d_ff."""

    batch_size: int
    context_length: int
    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int

    @property
    def d_head(self) -> int:
        return self.d_model // self.num_heads

    @property
    def tokens(self) -> int:
        return self.batch_size * self.context_length

    @property
    def block_weights(self) -> int:
        """Numbers in the weight matrices of a block: four projections of d × d, and three of d × d_ff."""
        return 4 * self.d_model**2 + 3 * self.d_model * self.d_ff

    @property
    def scores(self) -> int:
        """Entries of one layer's attention matrices: B H S^2."""
        return self.batch_size * self.num_heads * self.context_length**2


def parameter_count(shape: ModelShape) -> int:
    """Parameters of the model: 2 V d + L (4 d^2 + 3 d d_ff + 2 d) + d."""
    d = shape.d_model
    return 2 * shape.vocab_size * d + shape.num_layers * (shape.block_weights + 2 * d) + d


def matmul_flops(shape: ModelShape) -> dict[str, int]:
    """FLOPs of the matrix products of one forward pass, by part. Attention scores, and the final matmul (attention
    weights times values), take 2 B H S^2 d_head each, per layer; the half that the causal mask discards is counted,
    because it is computed."""
    heads = shape.num_layers * shape.batch_size * shape.num_heads
    repetitions = {ranges.HEAD: 1, ranges.ATTENTION_SCORES: heads, ranges.FINAL_MATMUL: heads}
    return {
        part: repetitions.get(part, shape.num_layers) * sum(2 * m * n * k for m, n, k in products)
        for part, products in matmul_shapes(shape).items()
    }


def matmul_shapes(shape: ModelShape) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """(m, n, k) of each matrix product of one layer and of the head, by part; the scores and the final matmul for one
    attention head of one sequence. All products of a part have the same number of FLOPs."""
    d, length, tokens = shape.d_model, shape.context_length, shape.tokens
    return {
        ranges.QKV_PROJECTION: ((tokens, d, d),) * 3,
        ranges.ATTENTION_SCORES: ((length, length, shape.d_head),),
        ranges.FINAL_MATMUL: ((length, shape.d_head, length),),
        ranges.OUTPUT_PROJECTION: ((tokens, d, d),),
        ranges.FEED_FORWARD: ((tokens, shape.d_ff, d),) * 2 + ((tokens, d, shape.d_ff),),
        ranges.HEAD: ((tokens, shape.vocab_size, d),),
    }


def softmax_flops(shape: ModelShape) -> int:
    """FLOPs of the softmax of all layers, 5 B H S^2 each: a convention of the course, exp counted as one."""
    return shape.num_layers * SOFTMAX_FLOPS_PER_SCORE * shape.scores


def forward_flops(shape: ModelShape) -> dict[str, int]:
    """FLOPs under "forward", of matrix products only, as torch's counter counts; then by part, softmax among them."""
    matmuls = matmul_flops(shape)
    return {ranges.FORWARD: sum(matmuls.values()), **matmuls, ranges.SOFTMAX: softmax_flops(shape)}


def forward_bytes(shape: ModelShape, element_bytes: int = 4) -> dict[str, int]:
    """Minimum bytes that each part of one forward pass moves, in all layers: every operand read once (weights
    included), every result written once, nothing cached between parts. Feed-forward includes its activation. A part
    with several kernels moves more."""
    d, d_ff, layers, tokens, scores = shape.d_model, shape.d_ff, shape.num_layers, shape.tokens, shape.scores
    elements = {
        ranges.EMBEDDING: 2 * tokens * d,
        ranges.NORM: (2 * layers + 1) * (2 * tokens * d + d),
        ranges.QKV_PROJECTION: layers * (3 * d * d + 4 * tokens * d),
        # queries and keys; the table of cosines and sines has d_head numbers per position
        ranges.ROPE: layers * 2 * (2 * tokens * d + shape.context_length * shape.d_head),
        ranges.ATTENTION_SCORES: layers * (2 * tokens * d + scores),
        ranges.MASK_AND_SCALE: layers * 2 * scores,
        ranges.SOFTMAX: layers * 2 * scores,
        ranges.FINAL_MATMUL: layers * (scores + 2 * tokens * d),
        ranges.OUTPUT_PROJECTION: layers * (d * d + 2 * tokens * d),
        ranges.RESIDUAL: 2 * layers * 3 * tokens * d,
        ranges.FEED_FORWARD: layers * (3 * d * d_ff + 2 * tokens * d + 6 * tokens * d_ff),
        ranges.ACTIVATION: layers * 3 * tokens * d_ff,
        ranges.HEAD: d * shape.vocab_size + tokens * (d + shape.vocab_size),
    }
    return {part: element_bytes * count for part, count in elements.items()}


def sequences_per_gpu(dimensions: Mapping[str, Any]) -> Any:
    """Sequences of a step on one GPU: all GPUs share the batch. Accepts numbers or columns of a table."""
    return dimensions["batch_size"] // dimensions["gpus"]


def shape_of(program: Mapping[str, Any]) -> ModelShape | None:
    """The shape of the model in a run specification `program`, with the sequences of one GPU. None if the shape is
    unknown: for a custom model, if a size is not among the arguments, or if attention alone runs."""
    if program.get("constructor") != PROJECT_CONSTRUCTOR:
        return None
    arguments, dimensions = constructor_arguments(program), program["dimensions"]
    sizes = {name: arguments.get(name) for name in SHAPE_ARGUMENTS}
    if not all(isinstance(size, int) for size in sizes.values()):
        return None
    return ModelShape(batch_size=sequences_per_gpu(dimensions), context_length=dimensions["context_length"], **sizes)
