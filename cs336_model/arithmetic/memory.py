"""How much device memory a run of this package's model needs, from its shape, in fp32. Imports no torch.

Checked against every allocation of a step on the meta device (tests/cs336_model/test_memory.py): within 3 %. The
allocator's own rounding, the CUDA context (about 0.5 GiB) and cuBLAS's workspace come on top.
"""

from cs336_model import ranges
from cs336_model.arithmetic.flops import ModelShape, parameter_count
from cs336_model.ranges import PHASES_OF_MODE

FP32_BYTES = 4


def saved_activation_bytes(shape: ModelShape) -> int:
    """Bytes that the forward pass keeps for the backward pass.

    Per layer, with N tokens: 10 N d (input, normed input and output of both norms, turned queries and keys, values,
    merged heads), 4 N d_ff (gate, up, SiLU, product), two attention matrices (exp and softmax) with their row sums, two
    inverse RMS. Then the last norm's input, normed input, output and inverse RMS, and the logits with logsumexp."""
    tokens, d = shape.tokens, shape.d_model
    layer = 10 * tokens * d + 4 * tokens * shape.d_ff + 2 * shape.scores + tokens * shape.num_heads + 2 * tokens
    end = 3 * tokens * d + tokens * shape.vocab_size + 2 * tokens
    return FP32_BYTES * (shape.num_layers * layer + end)


def estimated_peak_bytes(shape: ModelShape, mode: str) -> int:
    """Bytes of tensors at the fullest moment of a step. With a backward pass that is where it begins, with everything
    saved, or where it ends, with a gradient for every parameter; the optimizer's moments are there all the time."""
    parameter_bytes = FP32_BYTES * parameter_count(shape)
    d, logits, phases = shape.d_model, shape.tokens * shape.vocab_size, PHASES_OF_MODE[mode]
    in_a_block = max(3 * shape.scores, 4 * shape.tokens * shape.d_ff) + 5 * shape.tokens * d
    if ranges.BACKWARD not in phases:
        return parameter_bytes + FP32_BYTES * max(in_a_block, logits + shape.tokens * d)
    at_begin = saved_activation_bytes(shape) + FP32_BYTES * max(in_a_block, 3 * logits)
    at_end = parameter_bytes + FP32_BYTES * logits
    if ranges.OPTIMIZER not in phases:
        return parameter_bytes + max(at_begin, at_end)
    largest_parameter = d * max(shape.vocab_size, shape.d_ff)  # the optimizer's denominator is as large
    return 3 * parameter_bytes + max(at_begin, at_end + FP32_BYTES * largest_parameter)
